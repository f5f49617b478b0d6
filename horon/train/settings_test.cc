// Settings as people give them, what ranks agree on, and who owns a run's folder.
#include "horon/train/settings.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/text.h"
#include "horon/file/file.h"
#include "horon/train/agree.h"
#include "horon/train/checkpoint.h"
#include "horon/train/run_folder.h"
#include "horon/train/start.h"

namespace horon::train {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Config, FieldsAreReadAndMistakesNamed) {
  TrainConfig config;
  set_field(config, "batch_size", "256");
  set_field(config, "nesterov", "false");
  set_field(config, "learning_rate", "0.5");
  EXPECT_EQ(config.batch_size, 256U);
  EXPECT_FALSE(config.nesterov);
  const TrainConfig back = config_from_json(to_json(config));
  EXPECT_TRUE(differences(back, config).empty());
  set_field(config, "seed", "5");
  EXPECT_EQ(differences(config, back), std::vector<std::string>{"seed: 5 was 1"});
  EXPECT_THROW(set_field(config, "batchsize", "1"), UsageError);
  EXPECT_THROW(set_field(config, "batch_size", "-1"), UsageError);
  EXPECT_THROW(set_field(config, "learning_rate", "fast"), UsageError);
  config.reduction = Reduction::kExact;
  EXPECT_THROW(check_config(config, 9), UsageError);  // 8 shards
  config.dtype = DType::kI64;                         // of a C++ program
  EXPECT_NE(message_of([&] { check_config(config, 1); }).find("--dtype: 'value 4' is not one of"),
            std::string::npos);
}

// A row of the table is a member of TrainConfig, with the same default, and every word a value.
TEST(Config, HasAMemberForEverySettingOfTheTrainer) {
  const TrainConfig config;
  int count = 0;
  for (const Setting& setting : setting_table()) {
    if (setting.scope == SettingScope::kJob) {
      EXPECT_THROW(get_field(config, setting.name), UsageError) << setting.name;
      continue;
    }
    ++count;
    EXPECT_EQ(get_field(config, setting.name), setting.fallback) << setting.name;
    for (const std::string& word : split(setting.words, ' ')) {
      TrainConfig other;
      EXPECT_NO_THROW(set_field(other, setting.name, word)) << setting.name << " " << word;
    }
  }
  EXPECT_EQ(to_json(config).size(), count);
}

TEST(Config, ValuesThatCannotBeAreRefused) {
  const std::vector<std::pair<std::string, std::string>> bad = {{"threads_per_rank", "99999"},
                                                                {"label_smoothing", "3"},
                                                                {"label_smoothing", "-1"},
                                                                {"lr_base_batch", "0"},
                                                                {"learning_rate", "nan"},
                                                                {"learning_rate", "inf"},
                                                                {"learning_rate", "-0.1"},
                                                                {"momentum", "5"},
                                                                {"momentum", "-0.1"},
                                                                {"weight_decay", "-1"},
                                                                {"num_gpus", "0"},
                                                                {"input_threads", "0"},
                                                                {"image_size", "1000000"},
                                                                {"lr_power", "-1"},
                                                                {"batch_size", "0"},
                                                                {"backward_passes_per_step", "0"},
                                                                {"save_checkpoints_secs", "-1"},
                                                                {"logical_shards", "0"}};
  for (const auto& [name, value] : bad) {
    TrainConfig config;
    const std::string said = message_of([&] { set_field(config, name, value); });
    EXPECT_NE(said.find("--" + name), std::string::npos) << said;
    EXPECT_NE(said.find("allowed is"), std::string::npos) << said;
  }
  TrainConfig config;  // of a C++ program
  config.momentum = 5;
  EXPECT_THROW(check_config(config, 1), UsageError);
}

TEST(Config, WordsInAnyCaseAndByOtherNames) {
  TrainConfig config;
  set_field(config, "dtype", "BFloat16");
  set_field(config, "optimizer", "Adam");
  set_field(config, "learning_rate_strategy", "Cosine");
  set_field(config, "nesterov", "FALSE");
  set_field(config, "distribution_strategy", "Default");
  set_field(config, "model_dir", "Runs/A");
  check_config(config, 1);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.optimizer, OptimizerKind::kAdam);
  EXPECT_EQ(config.model_dir, "Runs/A");
  EXPECT_NE(message_of([&] { set_field(config, "optimizer", "Adan"); }).find("'adam'"),
            std::string::npos);
}

TEST(Config, ReplicasByTheirNumberAlone) {
  TrainConfig several;
  several.num_gpus = 3;
  check_config(several, 3);
  EXPECT_EQ(replicas_of(several), 3);
  several.distribution_strategy = Strategy::kMirrored;
  EXPECT_EQ(replicas_of(several), 3);
  several.distribution_strategy = Strategy::kOff;
  EXPECT_THROW(check_config(several, 1), UsageError);
}

TEST(Settings, FileErrorsNameTheLine) {
  const SettingsFile file =
      parse_settings("# a comment\nmodel = lenet\n\nbatch_size = 64 # here, too\n", "x");
  EXPECT_EQ(file.said.trainer, (Given{{"model", "lenet"}, {"batch_size", "64"}}));
  const auto said = [](const std::string& text) {
    return message_of([&] { parse_settings(text, "my.conf"); });
  };
  EXPECT_EQ(said("model lenet\n"), "my.conf:1: expected 'name = value', got 'model lenet'");
  EXPECT_EQ(said("\nmomentum = 5\n"), "my.conf:2: momentum: '5': allowed is 0 to 0.9999");
  EXPECT_EQ(said("\n\nmomentun = 0.5"),
            "my.conf:3: momentun: unknown setting 'momentun'; did you mean 'momentum'?");
  EXPECT_EQ(said("use_fp16 = true"),
            "my.conf:1: use_fp16: the closest available option is --dtype bf16");
  EXPECT_NE(said("{\"seed\": 1,\n}").find("my.conf: "), std::string::npos);
  EXPECT_NE(said("{\"seed\": 1,\n}").find("line 2"), std::string::npos);
  EXPECT_NE(said("{\"train_epoch\": 3}").find("my.conf: train_epoch: unknown setting"),
            std::string::npos);
  // One file for the trainer and the job: spellings, quotes, other programs' names; the last
  // counts.
  const Said both = parse_settings(
                        "Skip-Eval = TRUE\ndata_dir = \"a # b\" # c\nbucket-bytes = 4MB\n"
                        "train_url = 'x'\nfusion_threshold_mb = 2\nseed = 1\nseed = 2\n",
                        "x")
                        .said;
  EXPECT_EQ(
      both.trainer,
      (Given{{"skip_eval", "true"}, {"data_dir", "a # b"}, {"model_dir", "x"}, {"seed", "2"}}));
  EXPECT_EQ(both.job, (Given{{"bucket_bytes", "2097152"}}));
}

TEST(Settings, ConfigOfAnotherRunAppliesExceptItsFolder) {
  TrainConfig before;
  before.model = "lenet";
  before.model_dir = "runs/a";
  before.resume = ResumeMode::kNever;
  before.learning_rate_strategy = "5:0.1";  // beside a rate: no contradiction in a whole run
  auto json = to_json(before);
  json["resolved"] = {{"threads", 4}};
  const SettingsFile file = parse_settings(json.dump(1), "config.json");
  EXPECT_TRUE(file.is_of_run);
  TrainConfig config;
  apply_whole(config, file.said.trainer);
  EXPECT_EQ(config.model, "lenet");
  EXPECT_EQ(config.model_dir, "");
  EXPECT_EQ(config.resume, ResumeMode::kAuto);
}

TEST(Settings, ContradictionsAreErrorsAndLaterLayersWin) {
  const auto said = [](const Given& layer) {
    return message_of([&] {
      TrainConfig config;
      apply(config, layer);
    });
  };
  EXPECT_NE(said({{"batch_size", "8"}, {"batch_size_per_replica", "4"}}).find("one of the two"),
            std::string::npos);
  EXPECT_NE(said({{"train_epochs", "8"}, {"max_number_of_steps", "4"}}).find("one of the two"),
            std::string::npos);
  EXPECT_NE(said({{"learning_rate", "8"}, {"learning_rate_strategy", "5:1"}}).find("stages"),
            std::string::npos);
  EXPECT_EQ(said({{"learning_rate", "8"}, {"learning_rate_strategy", "cosine"}}),
            "nothing was thrown");
  TrainConfig config;
  apply(config, {{"max_number_of_steps", "4"}, {"batch_size_per_replica", "16"}});
  apply(config, {{"train_epochs", "20"}, {"batch_size", "8"}});
  EXPECT_EQ(config.max_number_of_steps, 0U);
  EXPECT_EQ(config.train_epochs, 20U);
  EXPECT_EQ(config.batch_size_per_replica, 0U);
}

EnvLookup env_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(Start, TakesSettingsOfTheJobAndOtherProgramsNames) {
  const TempFolder folder;
  const std::string path = folder.path() + "/settings";
  file::write(path, "batch-size = 64\nlog_level = info\ntimeout = 5s\nspin = 3\n");
  const Start start = Start::resolve(
      {{"model_name", "lenet"}, {"data_url", "/d"}, {"bucket-bytes", "4MB"}, {"max_epochs", "3"}},
      env_of({{"HORON_TIMEOUT", "7s"}}), path);
  EXPECT_EQ(start.config.model, "lenet");
  EXPECT_EQ(start.config.data_dir, "/d");
  EXPECT_EQ(start.config.batch_size, 64U);
  EXPECT_EQ(start.config.train_epochs, 3U);
  EXPECT_EQ(
      start.given,
      (Given{{"model", "lenet"}, {"data_dir", "/d"}, {"batch_size", "64"}, {"train_epochs", "3"}}));
  EXPECT_EQ(start.job_settings.bytes("bucket_bytes"), 4U << 20);
  EXPECT_EQ(start.job_settings.text("log_level"), "info");
  EXPECT_EQ(start.job_settings.origin("log_level"), "file");
  EXPECT_EQ(start.job_settings.text("timeout"), "7s");  // the environment before the file
  EXPECT_EQ(Start::resolve({{"spin", "4"}}, env_of({}), path).job_settings.text("spin"), "4");
  const auto said = [&](const Given& flags) {
    return message_of([&] { Start::resolve(flags, env_of({}), ""); });
  };
  EXPECT_EQ(said({{"train_url", "a"}, {"model_dir", "b"}}),
            "--model_dir and --train-url: both are model_dir; give one of the two");
  EXPECT_EQ(said({{"bucket_bytes", "x"}}),
            "--bucket-bytes: 'x' is not a size; write 4096, 64KB, 100MB or 2GB: allowed is 0 to "
            "1TB");
  EXPECT_EQ(said({{"bucket_byte", "1"}}),
            "--bucket-byte: unknown setting 'bucket_byte'; did you mean 'bucket_bytes'?");
}

TEST(Start, ResumesWithTheSettingsOfTheRun) {
  const TempFolder folder;
  TrainConfig before;
  before.model = "lenet";
  before.model_dir = "/elsewhere";
  before.max_number_of_steps = 7;
  before.hex_loss = true;
  before.resume = ResumeMode::kNever;
  before.device = DeviceChoice::kCpu;
  file::write(folder.path() + "/config.json", to_json(before).dump());
  const Given flags = {{"log_dir", folder.path()}, {"train_epochs", "3"}};
  const Start start = Start::resolve(flags, env_of({}), "");
  EXPECT_EQ(start.config.model, "lenet");
  EXPECT_EQ(start.config.model_dir, folder.path());
  EXPECT_EQ(start.config.max_number_of_steps, 0U);  // its rival was given
  EXPECT_FALSE(start.config.hex_loss);
  EXPECT_EQ(start.config.resume, ResumeMode::kAuto);
  EXPECT_EQ(start.config.device, DeviceChoice::kAuto);
  EXPECT_EQ(start.config.learning_rate_strategy, "");  // not a newcomer's
  EXPECT_EQ(start.given, (Given{{"model_dir", folder.path()}, {"train_epochs", "3"}}));
  EXPECT_EQ(Start::resolve({}, env_of({}), "").config.learning_rate_strategy, "polynomial");
  EXPECT_EQ(Start::resolve({{"model_dir", folder.path()}, {"resume", "never"}}, env_of({}), "")
                .config.model,
            "resnet_tiny");
  EXPECT_TRUE(Start::resolve({{"run_mode", "EVAL"}}, env_of({}), "").only_evaluates);
  // The same said in a file.
  const std::string path = folder.path() + "/settings";
  file::write(path, "train_dir = " + folder.path() + "\nrun_mode = evaluation\n");
  const Start from_file = Start::resolve({}, env_of({}), path);
  EXPECT_TRUE(from_file.only_evaluates);
  EXPECT_EQ(from_file.config.model, "lenet");
}

// A run and a checkpoint of version 0.1, as they were written then.
TEST(Frozen, RunsAndCheckpointsOfVersion01Load) {
  const std::string frozen = HORON_FROZEN_RUN;
  const std::string text = file::read(frozen + "/config.json");
  const nlohmann::json json = nlohmann::json::parse(text);
  TrainConfig config = config_from_json(json);
  EXPECT_EQ(config.optimizer, OptimizerKind::kAdam);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.scale_lr, RateScale::kLinear);
  EXPECT_EQ(config.nan_policy, NanPolicy::kSkipStep);
  EXPECT_EQ(config.lr_warmup_strategy, WarmUp::kExponential);
  EXPECT_EQ(config.distribution_strategy, Strategy::kMirrored);
  EXPECT_EQ(config.device, DeviceChoice::kCpu);
  EXPECT_EQ(rate_shape(config), RateShape::kCosine);
  EXPECT_EQ(config.seed, 9007199254740991U);
  EXPECT_EQ(config.learning_rate, 1e-05);
  nlohmann::json again = to_json(config);  // to the letter
  again["resolved"] = json["resolved"];
  EXPECT_EQ(again.dump(1) + "\n", text);
  EXPECT_TRUE(parse_settings(text, "config.json").is_of_run);
  const Snapshot snapshot = CheckpointStore::load(frozen + "/ckpt-00000002");
  EXPECT_EQ(snapshot.step, 2U);
  EXPECT_EQ(snapshot.data.digest, 12345678901234567890U);
  EXPECT_EQ(to_json(snapshot.config), to_json(config));
  EXPECT_EQ(Start::resolve({{"model_dir", frozen}}, env_of({}), "").config.seed, config.seed);
  EXPECT_EQ(Start::resolve({{"checkpoint_path", frozen + "/ckpt-00000002"}}, env_of({}), "", true)
                .config.optimizer,
            OptimizerKind::kAdam);
}

struct Outcome {
  TrainConfig config;
  std::string warning;
  std::string failure;
};

std::vector<Outcome> agree_all(const std::vector<TrainConfig>& configs,
                               const std::vector<Terms>& terms) {
  const auto store = make_memory_store();
  std::vector<Outcome> outcomes(terms.size());
  std::vector<std::jthread> ranks;
  for (size_t rank = 0; rank < terms.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        const AgreedTerms one =
            agree(*store, static_cast<int>(rank), static_cast<int>(terms.size()), configs[rank],
                  terms[rank], Milliseconds(5000));
        outcomes[rank] = {one.config, one.warning, ""};
      } catch (const Error& error) {
        outcomes[rank].failure = error.what();
      }
    });
  }
  ranks.clear();
  return outcomes;
}

TEST(AgreedTerms, IsRankZerosSettingsExceptThoseThatMayDiffer) {
  TrainConfig stored;  // what only rank 0 found in its folder
  stored.model = "lenet";
  stored.batch_size = 77;
  stored.data_dir = "/a";
  const Terms same{{{"train_epochs", "3"}}, {{"LibTorch", "1"}}};
  Terms other = same;
  other.given["data_dir"] = "/b";
  stored.train_epochs = 3;
  const auto all = agree_all({stored, {}, {}}, {same, other, same});
  for (const Outcome& one : all) {
    EXPECT_EQ(one.failure, "");
    EXPECT_EQ(one.config.model, "lenet");
    EXPECT_EQ(one.config.batch_size, 77U);
  }
  EXPECT_EQ(all[1].config.data_dir, "/b");
  EXPECT_EQ(all[2].config.data_dir, "/a");
}

TEST(AgreedTerms, NamesWhatDiffersOnWhichRanks) {
  const Terms a{{{"batch_size", "64"}}, {}};
  const Terms b{{{"batch_size", "32"}, {"seed", "7"}}, {}};
  TrainConfig config;
  config.batch_size = 64;
  for (const Outcome& one : agree_all({config, {}, {}}, {a, b, b})) {
    EXPECT_NE(one.failure.find("batch_size: 64 on rank 0, 32 on ranks 1, 2"), std::string::npos)
        << one.failure;
    EXPECT_NE(one.failure.find("seed: 1 on rank 0, 7 on ranks 1, 2"), std::string::npos);
  }
}

TEST(AgreedTerms, AGivenDefaultEqualsALeftOutSetting) {
  const Terms none;
  const Terms same{{{"seed", "1"}, {"learning_rate", "0.2"}}, {}};
  for (const Outcome& one : agree_all({{}, {}}, {none, same})) EXPECT_EQ(one.failure, "");
  for (const Outcome& one : agree_all({{}, {}}, {same, none})) EXPECT_EQ(one.failure, "");
}

TEST(AgreedTerms, DifferentPlatformsAreAnErrorOnlyWithExactReduction) {
  TrainConfig exact;
  exact.reduction = Reduction::kExact;
  const Terms a{{}, {{"LibTorch", "2.15, AVX512"}}};
  const Terms b{{}, {{"LibTorch", "2.15, AVX2"}}};
  for (const Outcome& one : agree_all({exact, exact}, {a, b}))
    EXPECT_NE(one.failure.find("LibTorch: 2.15, AVX512 on rank 0, 2.15, AVX2 on rank 1"),
              std::string::npos)
        << one.failure;
  const auto fast = agree_all({{}, {}}, {a, b});
  EXPECT_EQ(fast[1].failure, "");
  EXPECT_NE(fast[0].warning.find("AVX2 on rank 1"), std::string::npos);
}

TEST(AgreedTerms, NamesARankThatSendsNoSettings) {
  const auto store = make_memory_store();
  EXPECT_NE(message_of([&] { agree(*store, 0, 2, {}, {}, Milliseconds(30)); }).find("rank 1"),
            std::string::npos);
}

TEST(FolderLock, HasOneOwnerAtATime) {
  const TempFolder folder;
  {
    const FolderLock first(folder.path());
    EXPECT_NE(message_of([&] {
                FolderLock second(folder.path());
              }).find("process " + std::to_string(getpid())),
              std::string::npos);
    first.check();
  }
  const FolderLock third(folder.path());  // it was given back
}

TEST(FolderLock, OfADeadProcessIsTakenOver) {
  const TempFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    new FolderLock(folder.path());  // never given back
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(file::exists(folder.path() + "/run.lock"));
  const FolderLock mine(folder.path());
}

// On another host only the beat tells.
TEST(FolderLock, OfAnotherHostIsWatched) {
  const TempFolder folder;
  const std::string path = folder.path() + "/run.lock";
  const auto as_elsewhere = [&](int beat) {
    file::write(
        path,
        nlohmann::json{{"owner", "x"}, {"host", "far"}, {"place", "y"}, {"beat", beat}}.dump());
  };
  as_elsewhere(1);
  {
    std::string said;
    const FolderLock taken(
        folder.path(), [&](const std::string& line) { said = line; }, Milliseconds(40));
    EXPECT_NE(said.find("far"), std::string::npos);
  }
  as_elsewhere(1);
  const std::jthread beats([&](const std::stop_token& stop) {
    for (int i = 2; !stop.stop_requested(); ++i) as_elsewhere(i);
  });
  EXPECT_NE(message_of([&] { FolderLock late(folder.path(), {}, Milliseconds(200)); }).find("far"),
            std::string::npos);
}

TEST(FolderLock, ThatWasLostIsNoticed) {
  const TempFolder folder;
  const FolderLock mine(folder.path(), {}, Milliseconds(5));
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  std::string said;
  do {  // again: the owner may have been about to write
    file::write(folder.path() + "/run.lock", R"({"owner":"other","host":"far"})");
    said = message_of([&] { mine.check(); });
  } while (said == "nothing was thrown" && !deadline.passed());
  EXPECT_NE(said.find("far"), std::string::npos) << said;
}

TEST(Leftovers, AreRemovedAndCheckpointsStay) {
  const TempFolder folder;
  file::write(folder.path() + "/ckpt-00000005.part/model.safetensors", "x");
  file::write(folder.path() + "/ckpt-00000004/model.safetensors", "x");
  std::ofstream(folder.path() + "/config.json.12-0.horon-part") << "x";
  remove_leftovers(folder.path());
  const auto left = file::list(folder.path());
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(file::base_name(left[0].path), "ckpt-00000004");
  EXPECT_NE(access((folder.path() + "/config.json.12-0.horon-part").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace horon::train
