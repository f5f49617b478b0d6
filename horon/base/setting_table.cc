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
    Setting{
        "backend", kJob, kWord, "auto",
        "what collectives go over; auto takes shm on one host, hier on several, and nccl around "
        "them if every rank has a GPU of its own",
        "auto self local shm gloo mpi hier nccl", "", "", kMayChange, kSame},
    Setting{"cross_backend", kJob, kWord, "auto",
            "what hier uses between hosts; auto: mpi under mpirun, else gloo", "auto gloo mpi", "",
            "", kMayChange, kSame},
    Setting{"algorithm", kJob, kWords, "",
            "override of the algorithm table, e.g. `all_reduce=inline` or "
            "`all_reduce=two_shot,broadcast=tree`; see `horon info --algorithms`",
            "all_reduce=inline all_reduce=in_place all_reduce=windows all_reduce=one_shot "
            "all_reduce=two_shot all_reduce=two_level all_reduce=flat all_reduce=native "
            "reduce_scatter=inline reduce_scatter=in_place reduce_scatter=windows "
            "reduce_scatter=one_shot reduce_scatter=flat all_gather=inline all_gather=in_place "
            "all_gather=windows all_gather=one_shot all_gather=flat all_gather=native "
            "broadcast=inline broadcast=in_place broadcast=windows broadcast=tree "
            "broadcast=scatter broadcast=two_level broadcast=flat broadcast=native "
            "all_to_all=in_place all_to_all=windows all_to_all=one_shot all_to_all=flat",
            "", "", kMayChange, kSame},
    Setting{"timeout", kJob, kDuration, "30s",
            "how long an operation waits without progress before it ends with TimeoutError", "",
            "1ms", kLongest, kMayChange, kOwn, "HOROVOD_GLOO_TIMEOUT_SECONDS"},
    Setting{"start_timeout", kJob, kDuration, "30s",
            "how long ranks wait for each other when a communicator is made", "", "1ms", kLongest,
            kMayChange, kOwn, "HOROVOD_START_TIMEOUT"},
    Setting{
        "heap_bytes", kJob, kBytes, "16GB",
        "address space of one rank's shared heap; memory is taken only as buffers are allocated",
        "", "1MB", "16TB", kMayChange, kSame},
    Setting{"inline_bytes", kJob, kBytes, "64KB",
            "largest message that travels with the arrival flag inside a host", "", "512", "64KB",
            kMayChange, kSame},
    Setting{"spin", kJob, kInteger, "auto",
            "microseconds to spin before a wait sleeps; auto: 50 while ranks <= cores, else 2",
            "auto", "0", "1000000"},
    Setting{
        "host_id", kJob, kText, "",
        "identity of this host; empty: boot id and namespaces. Ranks with equal ids share memory"},
    Setting{"rendezvous", kJob, kAddress, "",
            "host:port of the store where ranks meet; set by `horon run`, or by hand with "
            "HORON_RANK and HORON_SIZE: rank 0 then serves there"},
    Setting{"secret_file", kJob, kText, "",
            "file with the job's secret (mode 0600, `horon secret FILE` makes one); set by `horon "
            "run`"},
    Setting{
        "insecure", kJob, kBool, "false",
        "start ranks on several hosts without a secret: everybody who reaches the port may join"},
    Setting{"interface", kJob, kText, "",
            "network interface or address for connections between hosts; empty: the one over which "
            "this host reached the store, or reaches its peers",
            "", "", "", kMayChange, kOwn, "HOROVOD_GLOO_IFACE"},
    Setting{"bucket_bytes", kJob, kBytes, "25MB",
            "tensors are reduced together until they are this large; 0: each alone", "", "0", "1TB",
            kMayChange, kSame, "HOROVOD_FUSION_THRESHOLD"},
    Setting{"first_bucket_bytes", kJob, kBytes, "1MB",
            "the same for the first bucket of a step, so that the wire does not wait long", "", "0",
            "1TB", kMayChange, kSame, "HOROVOD_FUSION_THRESHOLD"},
    Setting{"chunk_bytes", kJob, kBytes, "16MB",
            "larger transfers are cut into pieces of at most this, between which urgent ones "
            "overtake; 0: never",
            "0", "4KB", "1TB", kMayChange, kSame},
    Setting{"stall_warning_time", kJob, kDuration, "10s",
            "after how long a wait for other ranks is explained: who has not submitted what", "",
            "1ms", kLongest, kMayChange, kOwn, "HOROVOD_STALL_CHECK_TIME_SECONDS"},
    Setting{"stall_shutdown_time", kJob, kDuration, "600s",
            "after how long a wait for ranks that are alive but busy ends with TimeoutError; "
            "barriers wait without end",
            "", "1ms", kLongest, kMayChange, kOwn, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"},
    Setting{"autotune_file", kJob, kText, "",
            "file: bucket sizes and codec threads are tried on the first steps and the best is "
            "kept there for the next run; empty: off",
            "", "", "", kMayChange, kAllOrNone, "HOROVOD_AUTOTUNE_LOG HOROVOD_AUTOTUNE"},
    Setting{"timeline", kJob, kText, "",
            "every rank writes what it does to this path and its rank; `horon trace merge` makes "
            "one file",
            "", "", "", kMayChange, kAllOrNone, "HOROVOD_TIMELINE"},
    Setting{"flight_folder", kJob, kText, "",
            "where the last operations are written after an error and on SIGUSR1; empty: TMPDIR"},
    Setting{"parts", kJob, kText, "",
            "folder with libhoron_*.so; empty: beside libhoron.so, beside the program, in its "
            "../lib and ../lib/horon, in the installed package"},
    Setting{"log_level", kJob, kWord, "warn",
            "what is told; trace, warning and fatal are Horovod's words for debug, warn and error",
            "debug info warn error off trace warning fatal", "", "", kMayChange, kOwn,
            "HOROVOD_LOG_LEVEL"},
    Setting{"run_mode", kRun, kWord, "train", "train, or eval: as `horon evaluate`",
            "train eval evaluation", "", "", kForgotten, kSame},
    Setting{"batch_size", kRun, kInteger, "128",
            "GLOBAL batch: samples of one step on all replicas together, as in TensorFlow's "
            "official models; MoXing's batch_size is of one GPU: batch_size_per_replica here",
            "", "1", "1e9", kMustBeEqual, kSame},
    Setting{"batch_size_per_replica", kRun, kInteger, "0",
            "samples of one step on one replica (MoXing's batch_size), instead of batch_size", "",
            "0", "1e9", kMayChange, kSame},
    Setting{"train_epochs", kRun, kInteger, "10", "passes over the data", "", "0", "1e9",
            kMayChange, kSame},
    Setting{"max_number_of_steps", kRun, kInteger, "0",
            "optimizer steps of the whole job, instead of train_epochs; 0: as train_epochs says. "
            "(MoXing counts every batch of a worker, also those that are only accumulated)",
            "", "0", kMany, kMayChange, kSame},
    Setting{"learning_rate", kRun, kNumber, "0.2", "of the global batch, as it is", "", "0", "",
            kMustBeEqual, kSame},
    Setting{"learning_rate_strategy", kRun, kText, "",
            "stages by epoch (5:0.001->0.4,30:0.4,60:0.04), cosine, polynomial; default: constant "
            "(of resnet_tiny, if nothing is said of rates: polynomial after a fifth for warm-up)",
            "cosine polynomial", "", "", kMustBeEqual, kSame},
    Setting{"lr_warmup_strategy", kRun, kWord, "linear",
            "linear or exponential; exponential also bends the first stage a->b",
            "linear exponential", "", "", kMustBeEqual, kSame},
    Setting{"lr_warmup_epochs", kRun, kNumber, "0", "of constant, cosine and polynomial", "", "0",
            "1e9", kMustBeEqual, kSame},
    Setting{"lr_warmup_start", kRun, kNumber, "0",
            "the rate where that warm-up begins; 0 with exponential: a hundredth of the rate", "",
            "0", "", kMustBeEqual, kSame},
    Setting{"lr_power", kRun, kNumber, "1", "of polynomial", "", "0", "1000", kMustBeEqual, kSame},
    Setting{"lr_end", kRun, kNumber, "0", "of cosine and polynomial", "", "0", "", kMustBeEqual,
            kSame},
    Setting{"scale_lr", kRun, kWord, "none",
            "none, or linear: times global batch / lr_base_batch; never by ranks", "none linear",
            "", "", kMustBeEqual, kSame},
    Setting{"lr_base_batch", kRun, kInteger, "256", "for scale_lr", "", "1", "1e9", kMustBeEqual,
            kSame},
    Setting{"optimizer", kRun, kWord, "momentum", "sgd, momentum, adam, lars",
            "sgd momentum adam lars", "", "", kMustBeEqual, kSame},
    Setting{"momentum", kRun, kNumber, "0.9", "of momentum and lars", "", "0", "0.9999",
            kMustBeEqual, kSame},
    Setting{"nesterov", kRun, kBool, "true", "of momentum", "", "", "", kMustBeEqual, kSame},
    Setting{
        "weight_decay", kRun, kNumber, "0.0005",
        "on weights of convolutions and layers, not on BN and biases. The gradient gets this times "
        "the weight: l2_regularizer(x) of TensorFlow's slim is x here, l2(x) of Keras is 2x",
        "", "0", "", kMustBeEqual, kSame},
    Setting{"label_smoothing", kRun, kNumber, "0", "0 to 1", "", "0", "1", kMustBeEqual, kSame},
    Setting{"backward_passes_per_step", kRun, kInteger, "1",
            "batches whose gradients are averaged before a step", "", "1", "1e6", kMustBeEqual,
            kSame},
    Setting{"seed", kRun, kInteger, "1", "of weights, order and augmentation", "", "0",
            "9007199254740992", kMustBeEqual, kSame},
    Setting{"reduction", kRun, kWord, "fast",
            "fast, or exact: the same bits on any number of ranks (in a program: ReduceOptions)",
            "fast exact", "", "", kMustBeEqual, kSame},
    Setting{"logical_shards", kRun, kInteger, "8",
            "of exact: parts of a batch; at least the number of ranks", "", "1", "4096",
            kMustBeEqual, kSame},
    Setting{"threads_per_rank", kRun, kInteger, "0", "0: cores / ranks; with exact: 1", "", "0",
            "1024", kEqualForBits, kSame},
    Setting{"distribution_strategy", kRun, kWord, "",
            "off, one_device, mirrored, multi_worker_mirrored, horovod; default: mirrored if "
            "num_gpus is above 1, else off",
            "off one_device mirrored multi_worker_mirrored horovod default", "", "", kMayChange,
            kSame},
    Setting{"num_gpus", kRun, kInteger, "1",
            "replicas inside a process, one a GPU (or all on the CPU where there is none)", "", "1",
            "1024", kMayChange, kSame},
    Setting{"device", kRun, kWord, "auto", "cpu, cuda, or auto: a GPU if LibTorch can use one",
            "auto cpu cuda", "", "", kEqualForBits},
    Setting{"nan_policy", kRun, kWord, "abort",
            "abort, or skip-step, when a gradient is not finite", "abort skip-step", "", "",
            kMayChange, kSame},
    Setting{"resume", kRun, kWord, "auto",
            "auto: from the newest good checkpoint in model_dir; never", "auto never", "", "",
            kForgotten, kSame},
    Setting{"checkpoint_path", kRun, kText, "", "a checkpoint to start from if model_dir has none"},
    Setting{"model", kModel, kText, "resnet_tiny",
            "resnet_tiny, resnet_v1_18/20/50/56/110, resnet_v1_50_slim, lenet, workshop_cnn", "",
            "", "", kMustBeEqual, kSame},
    Setting{"dtype", kModel, kWord, "f32", "f32, or bf16 (weights stay f32)",
            "f32 bf16 fp32 float32 bfloat16", "", "", kMustBeEqual, kSame},
    Setting{"sync_batch_norm", kModel, kBool, "false",
            "batch norm takes its statistics over the samples of all ranks", "", "", "",
            kMustBeEqual, kSame},
    Setting{"dataset", kData, kText, "shapes10", "see `horon data stats --help`", "", "", "",
            kMustBeEqual, kSame},
    Setting{"data_dir", kData, kText, "", "where its files are"},
    Setting{"preprocessing", kData, kText, "", "default: the usual one of such pictures", "", "",
            "", kEqualIfKnown, kSame},
    Setting{"image_size", kData, kInteger, "0",
            "0: that of the pictures where all are alike and small, or 224", "", "0", "8192",
            kEqualIfKnown, kSame},
    Setting{"num_classes", kData, kInteger, "0", "0: the data set's", "", "0", "1e8", kEqualIfKnown,
            kSame},
    Setting{"train_samples", kData, kInteger, "0", "of shapes10 and synthetic; 0: their default",
            "", "0", "1e12", kMustBeEqual, kSame},
    Setting{"validation_split", kData, kInteger, "0",
            "samples cut from the training set, to evaluate along the way; the test set is scored "
            "at the end",
            "", "0", "1e12", kMustBeEqual, kSame},
    Setting{"drop_remainder", kData, kBool, "false", "leave out the last, short batch of an epoch",
            "", "", "", kMustBeEqual, kSame},
    Setting{"max_corrupt_records", kData, kInteger, "0",
            "bad records of a rank that are passed over", "", "0", "", kMayChange, kSame},
    Setting{"input_threads", kData, kInteger, "1", "that make batches", "", "1", "1024"},
    Setting{"model_dir", kOutput, kText, "",
            "folder for checkpoints and logs; default: a new one below ./runs", "", "", "",
            kForgotten},
    Setting{"epochs_between_evals", kOutput, kInteger, "1", "0: only at the end", "", "0", "",
            kMayChange, kSame},
    Setting{"skip_eval", kOutput, kBool, "false",
            "evaluate nothing; neither test nor validation data is opened", "", "", "", kMayChange,
            kSame},
    Setting{"save_checkpoints_steps", kOutput, kInteger, "0", "0: not by steps", "", "0", "",
            kMayChange, kSame},
    Setting{"save_checkpoints_secs", kOutput, kNumber, "0", "0: not by time", "", "0", "",
            kMayChange, kSame},
    Setting{"save_checkpoints_epochs", kOutput, kInteger, "1", "0: not by epochs", "", "0", "",
            kMayChange, kSame},
    Setting{"keep_checkpoint_max", kOutput, kInteger, "5", "older ones are removed; 0: all stay",
            "", "0", "", kMayChange, kSame},
    Setting{"keep_best", kOutput, kBool, "true",
            "the weights of the best accuracy (validation's, where there is such data) in "
            "model_dir/best",
            "", "", "", kMayChange, kSame},
    Setting{"log_every_n_steps", kOutput, kInteger, "20", "0: never", "", "0"},
    Setting{"hex_loss", kOutput, kBool, "false", "print every step's loss as a hexadecimal float",
            "", "", "", kForgotten},
};

constexpr const char* kOfEngine = "a switch of TensorFlow's engine; leave it out";
constexpr const char* kNoServers =
    "parameter servers are not built in yet; `horon run -np N` trains synchronously";
constexpr const char* kNoSparsity = "gradient compression by sparsity is not built in yet";
constexpr const char* kNoSummaries =
    "there are no summaries: --log_every_n_steps writes log.jsonl, which `horon plot` draws";
constexpr const char* kMoxing = "MoXing";
constexpr const char* kTf = "TensorFlow's official models";
constexpr const char* kSlim = "TensorFlow's slim";
constexpr const char* kHorovodrun = "horovodrun";

constexpr std::array kAliases = {
    SettingAlias{"data_url", kMoxing, "data_dir",
                 "a folder; what lies elsewhere is copied first: horon cp URL DIR"},
    SettingAlias{"dataset_dir", kSlim, "data_dir", ""},
    SettingAlias{"train_url", kMoxing, "model_dir", "a folder"},
    SettingAlias{"log_dir", kMoxing, "model_dir", "checkpoints, too"},
    SettingAlias{"train_dir", kSlim, "model_dir", "where a run writes, not its data"},
    SettingAlias{"checkpoint_url", kMoxing, "checkpoint_path", "a folder ckpt-STEP"},
    SettingAlias{"dataset_name", kMoxing, "dataset", ""},
    SettingAlias{"model_name", kMoxing, "model", ""},
    SettingAlias{"max_epochs", kMoxing, "train_epochs", ""},
    SettingAlias{"train_steps", kTf, "max_number_of_steps", "there: of one epoch alone"},
    SettingAlias{"log_steps", kTf, "log_every_n_steps", ""},
    SettingAlias{"save_interval_secs", kMoxing, "save_checkpoints_secs", ""},
    SettingAlias{"save_model_secs", kMoxing, "save_checkpoints_secs",
                 "there it wins over save_model_steps; here both hold"},
    SettingAlias{"save_model_steps", kMoxing, "save_checkpoints_steps", ""},
    SettingAlias{"num_batches", kMoxing, "backward_passes_per_step",
                 "of batch_gradients; steps count updates here, not batches"},
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
    SettingAlias{"job_name", kMoxing, "", "every rank is alike; start them with `horon run`"},
    SettingAlias{"task_index", kMoxing, "", "ranks are numbered by the launcher: `horon run`"},
    SettingAlias{"variable_update", kMoxing, "",
                 "gradients are all-reduced; --reduction chooses how"},
    SettingAlias{"sync_replicas", kMoxing, "", "training is always synchronous"},
    SettingAlias{"use_fp16", kMoxing, "", "--dtype bf16 is the nearest that is built in"},
    SettingAlias{"loss_scale", kMoxing, "", "bf16 needs none"},
    SettingAlias{"clone_on_cpu", kMoxing, "",
                 "replicas are on the CPU unless there is a GPU; --device cpu insists"},
    SettingAlias{"dgc_*", kMoxing, "", kNoSparsity},
    SettingAlias{"eval_url", kMoxing, "", "evaluations are written to --model_dir, too"},
    SettingAlias{"save_summaries_steps", kMoxing, "", kNoSummaries},
    SettingAlias{"save_summary_steps", kMoxing, "", kNoSummaries},
    SettingAlias{"samples_per_epoch", kMoxing, "", "the data set knows how many it has"},
    SettingAlias{"bs_and_ims_strategy", kMoxing, "",
                 "sizes that change along the way are not built in yet; --image_size and "
                 "--batch_size hold for a whole run"},
    SettingAlias{"export_model", kMoxing, "", "exports are not built in yet"},
    SettingAlias{"checkpoint_exclude_patterns", kMoxing, "",
                 "a checkpoint is taken whole; parts of one are not built in yet"},
    SettingAlias{"data_format", kMoxing, "", "there is nothing to choose; leave it out"},
    SettingAlias{"all_reduce_alg", kTf, "", "chosen by itself; --algorithm overrides it"},
    SettingAlias{"fp16_implementation", kTf, "", "--dtype bf16 is the nearest that is built in"},
    SettingAlias{"use_synthetic_data", kTf, "", "--dataset synthetic"},
    SettingAlias{"use_trivial_model", kTf, "", "--model lenet is the smallest"},
    SettingAlias{"clean", kTf, "", "--resume never begins anew and keeps what was there"},
    SettingAlias{"enable_checkpoint_and_export", kTf, "",
                 "checkpoints are always written; see --save_checkpoints_epochs"},
    SettingAlias{"enable_tensorboard", kTf, "", kNoSummaries},
    SettingAlias{"report_accuracy_metrics", kTf, "",
                 "always reported; --skip_eval evaluates nothing"},
    SettingAlias{"profile_steps", kTf, "", "--timeline FILE writes down all steps"},
    SettingAlias{"enable_xla", kTf, "", kOfEngine},
    SettingAlias{"enable_eager", kTf, "", kOfEngine},
    SettingAlias{"run_eagerly", kTf, "", kOfEngine},
    SettingAlias{"use_tensor_lr", kTf, "", kOfEngine},
    SettingAlias{"num_packs", kTf, "", kOfEngine},
    SettingAlias{"tf_gpu_thread_mode", kTf, "", kOfEngine},
    SettingAlias{"per_gpu_thread_count", kTf, "", kOfEngine},
};

constexpr const char* kNoFp16 = "fp16 and its loss scale are not built in yet; bf16 is the nearest";
constexpr std::array kRefusedWords = {
    RefusedWord{"distribution_strategy", "parameter_server",
                "not built in yet; multi_worker_mirrored trains on many hosts"},
    RefusedWord{"distribution_strategy", "tpu",
                "not built in yet; multi_worker_mirrored trains on many hosts"},
    RefusedWord{"dtype", "fp16", kNoFp16},
    RefusedWord{"dtype", "float16", kNoFp16},
    RefusedWord{"dtype", "f16", kNoFp16},
    RefusedWord{"nan_policy", "scale",
                "it belongs to the loss scale of fp16, which is not built in yet; skip-step is the "
                "nearest"},
};

}  // namespace

std::span<const SettingAlias> alias_table() { return kAliases; }
std::span<const RefusedWord> refused_words() { return kRefusedWords; }
std::span<const Setting> setting_table() { return kSettings; }

}  // namespace horon
