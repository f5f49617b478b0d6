// The rows. A new setting is one here, a reader, and `make docs`; one of the trainer's also a
// member of TrainConfig.
#include <array>

#include "horon/base/setting.h"

namespace horon {
namespace {

using enum SettingScope;
using enum SettingType;
using enum OnResume;
using enum AmongRanks;
using enum AliasUnit;

constexpr std::string_view kLongest = "365d";  // deadlines that far away do not overflow
constexpr std::string_view kMany = "1e15";     // samples, steps

// name, scope, type, default, help, words, low, high, on_resume, among_ranks, horovod
constexpr std::array kSettings = {
    Setting{"backend", kJob, kWord, "auto",
            "backend of collectives; auto: shm on one host, hier on several hosts, wrapped by nccl "
            "if every rank has its own GPU",
            "auto self local shm tcp gloo mpi hier nccl", "", "", kMayChange, kSame},
    Setting{"cross_backend", kJob, kWord, "auto",
            "backend that hier uses between hosts; auto: mpi under mpirun, else tcp",
            "auto tcp gloo mpi", "", "", kMayChange, kSame},
    Setting{"algorithm", kJob, kWords, "",
            "overrides the choice of algorithms, e.g. `all_reduce=inline` or "
            "`all_reduce=two_shot,broadcast=tree`; see `horon info --algorithms`",
            "all_reduce=inline all_reduce=in_place all_reduce=windows all_reduce=one_shot "
            "all_reduce=two_shot all_reduce=two_level all_reduce=flat all_reduce=native "
            "reduce_scatter=inline reduce_scatter=in_place reduce_scatter=windows "
            "reduce_scatter=one_shot reduce_scatter=two_level "
            "all_gather=inline all_gather=in_place all_gather=windows all_gather=one_shot "
            "all_gather=two_level all_gather=native "
            "broadcast=inline broadcast=in_place broadcast=windows broadcast=tree "
            "broadcast=scatter broadcast=two_level broadcast=native "
            "all_to_all=in_place all_to_all=windows all_to_all=one_shot all_to_all=two_level "
            "all_to_all=flat",
            "", "", kMayChange, kSame},
    Setting{"timeout", kJob, kDuration, "30s",
            "time without progress after which an operation ends with TimeoutError", "", "1ms",
            kLongest, kMayChange, kOwn, "HOROVOD_GLOO_TIMEOUT_SECONDS"},
    Setting{"start_timeout", kJob, kDuration, "30s",
            "how long ranks wait for each other when a communicator is created", "", "1ms",
            kLongest, kMayChange, kOwn, "HOROVOD_START_TIMEOUT"},
    Setting{"heap_bytes", kJob, kBytes, "16GB",
            "address space of one rank's shared heap; memory is used only as buffers are allocated",
            "", "1MB", "16TB", kMayChange, kSame},
    Setting{"inline_bytes", kJob, kBytes, "64KB",
            "largest message sent together with the arrival flag inside a host", "", "512", "64KB",
            kMayChange, kSame},
    Setting{"spin", kJob, kInteger, "auto",
            "microseconds to spin before a wait sleeps; auto: 50 if ranks <= cores, else 2", "auto",
            "0", "1000000"},
    Setting{
        "host_id", kJob, kText, "",
        "identity of this host; empty: boot id and namespaces. Ranks with equal ids share memory"},
    Setting{"rendezvous", kJob, kAddress, "",
            "host:port of the store where ranks meet; set by `horon run`, or by hand with "
            "HORON_RANK and HORON_SIZE: rank 0 then serves there"},
    Setting{"secret_file", kJob, kText, "",
            "file with the job's secret (mode 0600, `horon secret FILE` creates one); set by "
            "`horon run`"},
    Setting{
        "insecure", kJob, kBool, "false",
        "start ranks on several hosts without a secret: anyone who can reach the port can connect"},
    Setting{"interface", kJob, kText, "",
            "network interface or address for connections between hosts; empty: the one that "
            "reaches the store or the peers",
            "", "", "", kMayChange, kOwn, "HOROVOD_GLOO_IFACE"},
    Setting{"wire", kJob, kWord, "private",
            "what tcp sends between ranks: private (encrypted, authenticated), or plain",
            "private plain", "", "", kMayChange, kSame},
    Setting{"wire_key_bytes", kJob, kBytes, "64GB",
            "tcp replaces the keys of a private connection after at most this many bytes", "",
            "256KB", "64GB", kMayChange, kSame},
    Setting{"tcp_sockets", kJob, kInteger, "1",
            "connections of tcp between two ranks; more help on networks where one is slow", "",
            "1", "4", kMayChange, kSame},
    Setting{"tcp_congestion", kJob, kText, "auto",
            "congestion control of tcp: an algorithm, system, or auto: cubic on loopback and veth, "
            "else the system's"},
    Setting{"bucket_bytes", kJob, kBytes, "25MB",
            "tensors are reduced together in buckets of up to this size; 0: each alone", "", "0",
            "1TB", kMayChange, kSame, "HOROVOD_FUSION_THRESHOLD"},
    Setting{"first_bucket_bytes", kJob, kBytes, "1MB",
            "bucket size for the first bucket of a step, if it is smaller, so that communication "
            "starts early",
            "", "0", "1TB", kMayChange, kSame},
    Setting{"chunk_bytes", kJob, kBytes, "16MB",
            "larger transfers are split into chunks of this size, between which urgent ones can "
            "overtake; 0: never",
            "0", "4KB", "1TB", kMayChange, kSame},
    Setting{"stall_warning_time", kJob, kDuration, "10s",
            "time after which a wait is explained: which ranks have not submitted which operation",
            "", "1ms", kLongest, kMayChange, kOwn, "HOROVOD_STALL_CHECK_TIME_SECONDS"},
    Setting{"stall_shutdown_time", kJob, kDuration, "600s",
            "time after which a wait for ranks that are alive but busy ends with TimeoutError; "
            "barriers have no limit",
            "", "1ms", kLongest, kMayChange, kOwn, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"},
    Setting{"autotune_file", kJob, kText, "",
            "file for tuned values: tries bucket sizes and codec threads on the first steps and "
            "saves the best for the next run; empty: off",
            "", "", "", kMayChange, kAllOrNone, "HOROVOD_AUTOTUNE_LOG HOROVOD_AUTOTUNE"},
    Setting{"timeline", kJob, kText, "",
            "every rank writes a timeline to this path with its rank appended; `horon trace merge` "
            "combines them",
            "", "", "", kMayChange, kAllOrNone, "HOROVOD_TIMELINE"},
    Setting{"flight_folder", kJob, kText, "",
            "folder to which the last operations are written after an error and on SIGUSR1; empty: "
            "TMPDIR"},
    Setting{"parts", kJob, kText, "",
            "folder with libhoron_*.so; empty: beside libhoron.so, beside the program, in its "
            "../lib and ../lib/horon, in the installed package"},
    Setting{"log_level", kJob, kWord, "warn",
            "least severe messages to print; trace, warning and fatal are Horovod's names for "
            "debug, warn and error",
            "debug info warn error off trace warning fatal", "", "", kMayChange, kOwn,
            "HOROVOD_LOG_LEVEL"},
    Setting{"run_mode", kRun, kWord, "train", "train, or eval (the same as `horon evaluate`)",
            "train eval evaluation", "", "", kForgotten, kSame},
    Setting{
        "batch_size", kRun, kInteger, "128",
        "GLOBAL batch: samples of one batch on all replicas together, as in TensorFlow's official "
        "models; for MoXing's batch_size, which is per GPU, use batch_size_per_replica",
        "", "1", "1e9", kMustBeEqual, kSame},
    Setting{"batch_size_per_replica", kRun, kInteger, "0",
            "samples of one batch on one replica (MoXing's batch_size); replaces batch_size", "",
            "0", "1e9", kMayChange, kSame},
    Setting{"train_epochs", kRun, kInteger, "10", "passes over the data", "", "0", "1e9",
            kMayChange, kSame},
    Setting{"max_number_of_steps", kRun, kInteger, "0",
            "optimizer steps of the whole job; 0: use train_epochs. (MoXing counts every batch of "
            "a worker, including those that are only accumulated)",
            "", "0", kMany, kMayChange, kSame},
    Setting{"learning_rate", kRun, kNumber, "0.2",
            "learning rate for the global batch, used as given", "", "0", "", kMustBeEqual, kSame},
    Setting{"learning_rate_strategy", kRun, kText, "",
            "stages by epoch (5:0.001->0.4,30:0.4,60:0.04), cosine, polynomial; default: constant "
            "(resnet_tiny without any rate setting: polynomial after a warm-up of one fifth)",
            "cosine polynomial", "", "", kMustBeEqual, kSame},
    Setting{"lr_warmup_strategy", kRun, kWord, "linear",
            "linear or exponential; exponential also applies to the first stage a->b",
            "linear exponential", "", "", kMustBeEqual, kSame},
    Setting{"lr_warmup_epochs", kRun, kNumber, "0",
            "warm-up of constant, cosine and polynomial schedules", "", "0", "1e9", kMustBeEqual,
            kSame},
    Setting{
        "lr_warmup_start", kRun, kNumber, "0",
        "learning rate at the start of the warm-up; 0 with exponential: a hundredth of the rate",
        "", "0", "", kMustBeEqual, kSame},
    Setting{"lr_power", kRun, kNumber, "1", "exponent of the polynomial schedule", "", "0", "1000",
            kMustBeEqual, kSame},
    Setting{"lr_end", kRun, kNumber, "0", "final rate of cosine and polynomial schedules", "", "0",
            "", kMustBeEqual, kSame},
    Setting{"scale_lr", kRun, kWord, "none",
            "none, or linear: multiplies the rate by global batch / lr_base_batch, never by ranks",
            "none linear", "", "", kMustBeEqual, kSame},
    Setting{"lr_base_batch", kRun, kInteger, "256", "reference batch of scale_lr", "", "1", "1e9",
            kMustBeEqual, kSame},
    Setting{"optimizer", kRun, kWord, "momentum", "sgd, momentum, adam, lars",
            "sgd momentum adam lars", "", "", kMustBeEqual, kSame},
    Setting{"momentum", kRun, kNumber, "0.9", "momentum of momentum and lars", "", "0", "0.9999",
            kMustBeEqual, kSame},
    Setting{"nesterov", kRun, kBool, "true", "use Nesterov momentum (momentum only)", "", "", "",
            kMustBeEqual, kSame},
    Setting{"weight_decay", kRun, kNumber, "0.0005",
            "on weights of convolutions and linear layers, not on batch norm and biases. Adds this "
            "times the weight to the gradient: l2_regularizer(x) of TensorFlow's slim is x here, "
            "l2(x) of Keras is 2x",
            "", "0", "", kMustBeEqual, kSame},
    Setting{"label_smoothing", kRun, kNumber, "0", "0 to 1", "", "0", "1", kMustBeEqual, kSame},
    Setting{"backward_passes_per_step", kRun, kInteger, "1",
            "number of batches whose gradients are averaged for one step", "", "1", "1e6",
            kMustBeEqual, kSame},
    Setting{"seed", kRun, kInteger, "1", "seed of weights, order and augmentation", "", "0",
            "9007199254740992", kMustBeEqual, kSame},
    Setting{"reduction", kRun, kWord, "fast",
            "fast, or exact: the same bits on any number of ranks (in a program: ReduceOptions)",
            "fast exact", "", "", kMustBeEqual, kSame},
    Setting{"logical_shards", kRun, kInteger, "8",
            "with exact: number of parts of a batch; at least the number of ranks", "", "1", "4096",
            kMustBeEqual, kSame},
    Setting{"threads_per_rank", kRun, kInteger, "0",
            "compute threads; 0: cores / ranks, with exact: 1", "", "0", "1024", kEqualForBits,
            kSame},
    Setting{"distribution_strategy", kRun, kWord, "",
            "off, one_device, mirrored, multi_worker_mirrored, horovod; default: mirrored if "
            "num_gpus is above 1, else off",
            "off one_device mirrored multi_worker_mirrored horovod default", "", "", kMayChange,
            kSame},
    Setting{"num_gpus", kRun, kInteger, "1",
            "replicas per process, one per GPU (or all on the CPU if there is no GPU)", "", "1",
            "1024", kMayChange, kSame},
    Setting{"device", kRun, kWord, "auto", "cpu, cuda, or auto: a GPU if LibTorch can use one",
            "auto cpu cuda", "", "", kEqualForBits},
    Setting{"nan_policy", kRun, kWord, "abort",
            "what to do when a gradient is not finite: abort, or skip-step", "abort skip-step", "",
            "", kMayChange, kSame},
    Setting{"resume", kRun, kWord, "auto",
            "auto: resume from the newest valid checkpoint in model_dir; never: start from scratch",
            "auto never", "", "", kForgotten, kSame},
    Setting{"checkpoint_path", kRun, kText, "", "a checkpoint to start from if model_dir has none"},
    Setting{"model", kModel, kText, "resnet_tiny",
            "resnet_tiny, resnet_v1_18/20/50/56/110, resnet_v1_50_slim, lenet, workshop_cnn", "",
            "", "", kMustBeEqual, kSame},
    Setting{"dtype", kModel, kWord, "f32", "f32, or bf16 (weights stay f32)",
            "f32 bf16 fp32 float32 bfloat16", "", "", kMustBeEqual, kSame},
    Setting{"sync_batch_norm", kModel, kBool, "false",
            "batch norm uses statistics over the samples of all ranks", "", "", "", kMustBeEqual,
            kSame},
    Setting{"dataset", kData, kText, "shapes10", "see `horon data stats --help`", "", "", "",
            kMustBeEqual, kSame},
    Setting{"data_dir", kData, kText, "", "folder with the data set's files"},
    Setting{"preprocessing", kData, kText, "",
            "augmentation recipe; default: the usual one for such images", "", "", "",
            kEqualIfKnown, kSame},
    Setting{"image_size", kData, kInteger, "0",
            "0: the images' size if all have the same small size, else 224", "", "0", "8192",
            kEqualIfKnown, kSame},
    Setting{"num_classes", kData, kInteger, "0", "0: as in the data set", "", "0", "1e8",
            kEqualIfKnown, kSame},
    Setting{"train_samples", kData, kInteger, "0",
            "training samples of shapes10 and synthetic; 0: their default", "", "0", "1e12",
            kMustBeEqual, kSame},
    Setting{"validation_split", kData, kInteger, "0",
            "samples taken from the training set for evaluations during training; the test set is "
            "scored at the end",
            "", "0", "1e12", kMustBeEqual, kSame},
    Setting{"drop_remainder", kData, kBool, "false", "skip the last, short batch of an epoch", "",
            "", "", kMustBeEqual, kSame},
    Setting{"max_corrupt_records", kData, kInteger, "0",
            "corrupt records per rank that are skipped before the run fails", "", "0", "",
            kMayChange, kSame},
    Setting{"input_threads", kData, kInteger, "1", "threads that prepare batches", "", "1", "1024"},
    Setting{"model_dir", kOutput, kText, "",
            "folder for checkpoints and logs; default: a new one in ./runs", "", "", "",
            kForgotten},
    Setting{"epochs_between_evals", kOutput, kInteger, "1",
            "epochs between evaluations; 0: only at the end", "", "0", "", kMayChange, kSame},
    Setting{"skip_eval", kOutput, kBool, "false",
            "do not evaluate; neither test nor validation data is opened", "", "", "", kMayChange,
            kSame},
    Setting{"save_checkpoints_steps", kOutput, kInteger, "0",
            "steps between checkpoints; 0: not by steps", "", "0", "", kMayChange, kSame},
    Setting{"save_checkpoints_secs", kOutput, kNumber, "0",
            "seconds between checkpoints; 0: not by time", "", "0", "", kMayChange, kSame},
    Setting{"save_checkpoints_epochs", kOutput, kInteger, "1",
            "epochs between checkpoints; 0: not by epochs", "", "0", "", kMayChange, kSame},
    Setting{"keep_checkpoint_max", kOutput, kInteger, "5", "number of checkpoints to keep; 0: all",
            "", "0", "", kMayChange, kSame},
    Setting{"keep_best", kOutput, kBool, "true",
            "keep the weights with the best accuracy (on validation data if available) in "
            "model_dir/best",
            "", "", "", kMayChange, kSame},
    Setting{"log_every_n_steps", kOutput, kInteger, "20", "steps between log lines; 0: never", "",
            "0"},
    Setting{"hex_loss", kOutput, kBool, "false", "print every step's loss as a hexadecimal float",
            "", "", "", kForgotten},
};

constexpr const char* kOfEngine = "an option of TensorFlow's engine; omit it";
constexpr const char* kNoServers =
    "parameter servers are not implemented yet; `horon run -np N` trains synchronously";
constexpr const char* kNoSparsity = "sparse gradient compression is not implemented yet";
constexpr const char* kNoSummaries =
    "there are no summaries; --log_every_n_steps writes log.jsonl for `horon plot`";
constexpr const char* kMoxing = "MoXing";
constexpr const char* kTf = "TensorFlow's official models";
constexpr const char* kSlim = "TensorFlow's slim";
constexpr const char* kHorovodrun = "horovodrun";

constexpr std::array kAliases = {
    SettingAlias{"data_url", kMoxing, "data_dir",
                 "a folder; copy remote data first: horon cp URL DIR"},
    SettingAlias{"dataset_dir", kSlim, "data_dir", ""},
    SettingAlias{"train_url", kMoxing, "model_dir", "a folder"},
    SettingAlias{"log_dir", kMoxing, "model_dir", "also for checkpoints"},
    SettingAlias{"train_dir", kSlim, "model_dir", "where the run writes, not its data"},
    SettingAlias{"checkpoint_url", kMoxing, "checkpoint_path", "a folder ckpt-STEP"},
    SettingAlias{"dataset_name", kMoxing, "dataset", ""},
    SettingAlias{"model_name", kMoxing, "model", ""},
    SettingAlias{"max_epochs", kMoxing, "train_epochs", ""},
    SettingAlias{"train_steps", kTf, "max_number_of_steps", "there: per epoch"},
    SettingAlias{"log_steps", kTf, "log_every_n_steps", ""},
    SettingAlias{"save_interval_secs", kMoxing, "save_checkpoints_secs", ""},
    SettingAlias{"save_model_secs", kMoxing, "save_checkpoints_secs",
                 "there it overrides save_model_steps; here both apply"},
    SettingAlias{"save_model_steps", kMoxing, "save_checkpoints_steps", ""},
    SettingAlias{"num_batches", kMoxing, "backward_passes_per_step",
                 "of batch_gradients; here steps count updates, not batches"},
    SettingAlias{"datasets_num_private_threads", kTf, "input_threads", ""},
    SettingAlias{"num_intra_threads", kMoxing, "threads_per_rank", ""},
    SettingAlias{"gloo_timeout_seconds", kHorovodrun, "timeout", "in seconds", kSeconds},
    SettingAlias{"stall_check_warning_time_seconds", kHorovodrun, "stall_warning_time",
                 "in seconds", kSeconds},
    SettingAlias{"stall_check_shutdown_time_seconds", kHorovodrun, "stall_shutdown_time",
                 "in seconds; 0: never", kSeconds},
    SettingAlias{"fusion_threshold_mb", kHorovodrun, "bucket_bytes", "in MB", kMegabytes},
    SettingAlias{"timeline_filename", kHorovodrun, "timeline", ""},
    SettingAlias{"autotune_log_file", kHorovodrun, "autotune_file", ""},
    SettingAlias{"network_interfaces", kHorovodrun, "interface", ""},

    SettingAlias{"ps_hosts", kMoxing, "", kNoServers},
    SettingAlias{"local_parameter_device", kMoxing, "", kNoServers},
    SettingAlias{"worker_hosts", kMoxing, "",
                 "the launcher knows the hosts: horon run -np N -H a:4,b:4 horon train ..."},
    SettingAlias{"job_name", kMoxing, "",
                 "all ranks have the same role; start them with `horon run`"},
    SettingAlias{"task_index", kMoxing, "", "ranks are numbered by the launcher: `horon run`"},
    SettingAlias{"variable_update", kMoxing, "",
                 "gradients are all-reduced; --reduction chooses how"},
    SettingAlias{"sync_replicas", kMoxing, "", "training is always synchronous"},
    SettingAlias{"use_fp16", kMoxing, "", "the closest available option is --dtype bf16"},
    SettingAlias{"loss_scale", kMoxing, "", "bf16 needs none"},
    SettingAlias{"clone_on_cpu", kMoxing, "",
                 "replicas use the CPU if there is no GPU; --device cpu forces it"},
    SettingAlias{"dgc_*", kMoxing, "", kNoSparsity},
    SettingAlias{"eval_url", kMoxing, "", "evaluations are also written to --model_dir"},
    SettingAlias{"save_summaries_steps", kMoxing, "", kNoSummaries},
    SettingAlias{"save_summary_steps", kMoxing, "", kNoSummaries},
    SettingAlias{"samples_per_epoch", kMoxing, "", "the number is taken from the data set"},
    SettingAlias{"bs_and_ims_strategy", kMoxing, "",
                 "sizes that change during a run are not implemented yet; --image_size and "
                 "--batch_size apply to the whole run"},
    SettingAlias{"export_model", kMoxing, "", "exports are not implemented yet"},
    SettingAlias{"checkpoint_exclude_patterns", kMoxing, "",
                 "loading parts of a checkpoint is not implemented yet"},
    SettingAlias{"data_format", kMoxing, "", "there is only one format; omit it"},
    SettingAlias{"all_reduce_alg", kTf, "", "chosen automatically; --algorithm overrides it"},
    SettingAlias{"fp16_implementation", kTf, "", "the closest available option is --dtype bf16"},
    SettingAlias{"use_synthetic_data", kTf, "", "use --dataset synthetic"},
    SettingAlias{"use_trivial_model", kTf, "", "the smallest model is --model lenet"},
    SettingAlias{"clean", kTf, "", "--resume never starts from scratch and keeps the old contents"},
    SettingAlias{"enable_checkpoint_and_export", kTf, "",
                 "checkpoints are always written; see --save_checkpoints_epochs"},
    SettingAlias{"enable_tensorboard", kTf, "", kNoSummaries},
    SettingAlias{"report_accuracy_metrics", kTf, "",
                 "always reported; --skip_eval turns evaluation off"},
    SettingAlias{"profile_steps", kTf, "", "--timeline FILE records all steps"},
    SettingAlias{"enable_xla", kTf, "", kOfEngine},
    SettingAlias{"enable_eager", kTf, "", kOfEngine},
    SettingAlias{"run_eagerly", kTf, "", kOfEngine},
    SettingAlias{"use_tensor_lr", kTf, "", kOfEngine},
    SettingAlias{"num_packs", kTf, "", kOfEngine},
    SettingAlias{"tf_gpu_thread_mode", kTf, "", kOfEngine},
    SettingAlias{"per_gpu_thread_count", kTf, "", kOfEngine},
};

constexpr const char* kNoFp16 =
    "fp16 with loss scaling is not implemented yet; the closest available type is bf16";
constexpr std::array kRefusedWords = {
    RefusedWord{"distribution_strategy", "parameter_server",
                "not implemented yet; multi_worker_mirrored trains on many hosts"},
    RefusedWord{"distribution_strategy", "tpu",
                "not implemented yet; multi_worker_mirrored trains on many hosts"},
    RefusedWord{"dtype", "fp16", kNoFp16},
    RefusedWord{"dtype", "float16", kNoFp16},
    RefusedWord{"dtype", "f16", kNoFp16},
    RefusedWord{"nan_policy", "scale",
                "it belongs to the loss scaling of fp16, which is not implemented yet; the closest "
                "available value is skip-step"},
};

}  // namespace

std::span<const SettingAlias> alias_table() { return kAliases; }
std::span<const RefusedWord> refused_words() { return kRefusedWords; }
std::span<const Setting> setting_table() { return kSettings; }

}  // namespace horon
