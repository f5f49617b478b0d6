#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "horon/base/error.h"
#include "horon/base/horovod.h"
#include "horon/base/job_settings.h"
#include "horon/base/log.h"
#include "horon/base/part.h"
#include "horon/base/queue.h"
#include "horon/base/registry.h"
#include "horon/base/signal.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"
#include "horon/base/time.h"

namespace horon {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

EnvLookup env_of(std::map<std::string, std::string> values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

TEST(Errors, CarryTheirExitCodes) {
  EXPECT_EQ(UsageError("x").exit_code(), ExitCode::kUsage);
  EXPECT_EQ(UsageError("x", ExitCode::kMismatch).exit_code(), ExitCode::kMismatch);
  EXPECT_EQ(PeerLostError("x", {3}).exit_code(), ExitCode::kPeer);
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({3, 5}), "ranks 3, 5");
}

TEST(ExitCodes, EveryCodeOfTheTableIsInTheHelp) {
  const std::string help = exit_code_help();
  for (const char* code : {"  2  ", " 75  ", " 10  ", " 18  "}) {
    EXPECT_NE(help.find(code), std::string::npos) << code;
  }
}

TEST(Duration, ReadsUnitsAndRefusesNonsense) {
  EXPECT_EQ(parse_duration("250ms"), Milliseconds(250));
  EXPECT_EQ(parse_duration("30"), Milliseconds(30000));
  EXPECT_EQ(parse_duration("1.5h"), Milliseconds(5400000));
  for (const char* bad : {"", "s", "-1s", "5 apples", "1e400s", "nan"}) {
    EXPECT_NE(message_of([&] { parse_duration(bad); }).find("is not a duration"), std::string::npos)
        << bad;
  }
  for (const char* text : {"30s", "1500ms", "2h", "0s"}) {
    EXPECT_EQ(format_duration(parse_duration(text)), text);
  }
}

TEST(Bytes, ReadsAndWritesUnits) {
  EXPECT_EQ(parse_bytes("64KB"), 65536U);
  EXPECT_EQ(parse_bytes("100 MB"), 104857600U);
  EXPECT_EQ(parse_bytes("2GiB"), 2147483648U);
  EXPECT_EQ(parse_bytes("7"), 7U);
  EXPECT_EQ(format_bytes(4), "4 B");
  EXPECT_EQ(format_bytes(65536), "64 KB");
  EXPECT_EQ(format_bytes(1536), "1.5 KB");
  for (const char* bad : {"", "-1", "KB", "5 XB", "1e30TB"}) {
    EXPECT_THROW(parse_bytes(bad), UsageError) << bad;
  }
}

TEST(Integer, NamesTheRange) {
  EXPECT_EQ(parse_integer(" 7 ", "ranks", 1, 8), 7);
  EXPECT_EQ(message_of([] { parse_integer("-3", "ranks", 1, 8); }),
            "ranks: '-3' is not a whole number from 1 to 8");
  EXPECT_THROW(parse_integer("99999999999999999999", "ranks", 1, 8), UsageError);
}

TEST(Deadline, PassesAfterItsDurationUnlessNever) {
  EXPECT_TRUE(Deadline::after(Milliseconds(0)).passed());
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_EQ(Deadline::after(Milliseconds(-5)).left(), Clock::duration::zero());
}

TEST(JobSettings, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("settings-{}.conf", getpid());
  std::ofstream(path) << "# comment\ntimeout = 5s\nbackend = gloo\nspin = 7\n";
  const auto env = env_of({{"HORON_TIMEOUT", "6s"}, {"HORON_BACKEND", "shm"}});
  const JobSettings job_settings = JobSettings::resolve({{"timeout", "7s"}}, env, path);
  std::filesystem::remove(path);
  EXPECT_EQ(job_settings.duration("timeout"), Milliseconds(7000));
  EXPECT_EQ(job_settings.text("backend"), "shm");
  EXPECT_EQ(job_settings.integer("spin"), 7);
  EXPECT_EQ(job_settings.bytes("inline_bytes"), 65536U);
  EXPECT_EQ(job_settings.origin("timeout"), "command line");
  EXPECT_EQ(job_settings.origin("backend"), "environment");
  EXPECT_EQ(job_settings.origin("spin"), "file");
  EXPECT_EQ(job_settings.origin("inline_bytes"), "default");
}

TEST(JobSettings, HorovodsVariablesCountBelowOurs) {
  const auto resolve = [](std::map<std::string, std::string> variables) {
    return JobSettings::resolve({}, env_of(std::move(variables)), "");
  };
  const JobSettings job_settings = resolve({{"HOROVOD_FUSION_THRESHOLD", "1000"},
                                            {"HOROVOD_GLOO_TIMEOUT_SECONDS", "7"},
                                            {"HOROVOD_STALL_CHECK_TIME_SECONDS", "1.5"},
                                            {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0"},
                                            {"HOROVOD_LOG_LEVEL", "TRACE"},
                                            {"HOROVOD_TIMELINE", "t.json"},
                                            {"HORON_TIMELINE", "ours"},
                                            {"HOROVOD_AUTOTUNE", "1"}});
  EXPECT_EQ(job_settings.bytes("bucket_bytes"), 1000U);
  EXPECT_EQ(job_settings.origin("bucket_bytes"), "HOROVOD_FUSION_THRESHOLD");
  EXPECT_EQ(job_settings.duration("timeout"), Milliseconds(7000));
  EXPECT_EQ(job_settings.duration("stall_warning_time"), Milliseconds(1500));
  EXPECT_EQ(job_settings.text("stall_shutdown_time"), "365d");  // 0: never
  EXPECT_EQ(job_settings.text("log_level"), "trace");
  EXPECT_EQ(job_settings.text("timeline"), "ours");
  EXPECT_EQ(job_settings.origin("timeline"), "environment");
  EXPECT_EQ(job_settings.text("autotune_file"), "horon-autotune.json");
  EXPECT_EQ(
      resolve({{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_LOG", "log"}}).text("autotune_file"),
      "log");
  for (const char* nothing : {"", "DYNAMIC"})
    EXPECT_EQ(
        resolve({{"HOROVOD_TIMELINE", nothing}, {"HOROVOD_AUTOTUNE", "0"}}).origin("timeline"),
        "default");
  EXPECT_EQ(message_of([&] {
              resolve({{"HOROVOD_GLOO_TIMEOUT_SECONDS", "soon"}});
            }).find("HOROVOD_GLOO_TIMEOUT_SECONDS (environment): 'soon'"),
            0U);
  const auto idle = env_of({{"HOROVOD_CYCLE_TIME", "5"}, {"HOROVOD_TIMELINE", "t"}});
  EXPECT_EQ(explain_idle_horovod(idle),
            std::vector<std::string>{
                "HOROVOD_CYCLE_TIME has no meaning here: there is no polling cycle"});
}

TEST(JobSettings, RefusesUnknownNamesAndBadValues) {
  const auto flag = [](const std::string& name, const std::string& value) {
    return message_of([&] { JobSettings::resolve({{name, value}}, env_of({}), ""); });
  };
  EXPECT_EQ(flag("timeot", "1s"), "--timeot: unknown setting 'timeot'; did you mean 'timeout'?");
  EXPECT_EQ(flag("cross_backend", "goo"),
            "--cross-backend: 'goo' is not one of auto, tcp, gloo, mpi; did you mean 'gloo'?");
  EXPECT_EQ(flag("timeout", "0"), "--timeout: '0': allowed is 1ms to 365d");
  EXPECT_EQ(flag("spin", "x"),
            "--spin: 'x' is not a whole number: allowed is 0 to 1000000, or auto");
  EXPECT_EQ(flag("insecure", "perhaps"), "--insecure: 'perhaps' is neither true nor false");
  EXPECT_NE(flag("reduction", "exact").find("--reduction: a setting of the trainer"),
            std::string::npos);
  EXPECT_NE(flag("train_url", "x").find("`horon train --model_dir x`"), std::string::npos);
  EXPECT_EQ(flag("bucket_byte", "1"),
            "--bucket-byte: unknown setting 'bucket_byte'; did you mean "
            "'bucket_bytes'?");
  EXPECT_EQ(flag("lerning_rate", "1"),
            "--lerning-rate: unknown setting 'lerning_rate'; did you "
            "mean 'learning_rate'?");  // of the whole table
  for (const char* bad : {"here", ":1", "here:", "here:0", "here:65536", "a:1,b"})
    EXPECT_NE(flag("rendezvous", bad), "no error") << bad;
  for (const char* good : {"", "here:1", "[::1]:65535,b:2"})
    EXPECT_EQ(flag("rendezvous", good), "no error") << good;
  EXPECT_EQ(message_of([] {
              JobSettings::resolve({}, env_of({{"HORON_LOG_LEVEL", "loud"}}), "");
            }).find("HORON_LOG_LEVEL (environment): 'loud' is not one of debug, info"),
            0U);
  EXPECT_THROW(JobSettings::resolve({}, env_of({}), "/nowhere/at/all"), UsageError);
  EXPECT_THROW(JobSettings().set("backend", "shmem", "test"), UsageError);
}

TEST(JobSettings, FilesAreReadLineByLine) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("settings-{}.conf", getpid());
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return JobSettings::resolve({}, env_of({{"HORON_CONFIG", path}}), "");
  };
  const auto why = [&](const std::string& text) { return message_of([&] { read(text); }); };
  const JobSettings job_settings = read(
      "backend = SHM # so\ntimeline = \"a # b\"  # c\nhost_id = 'it'\nlog_level = Warning\n"
      "algorithm = All_Reduce=Two_Shot, broadcast=tree\ninsecure = ON\nspin = AUTO\nspin = 1e3");
  EXPECT_EQ(job_settings.text("backend"), "shm");
  EXPECT_EQ(job_settings.text("timeline"), "a # b");
  EXPECT_EQ(job_settings.text("host_id"), "it");
  EXPECT_EQ(job_settings.text("log_level"), "warning");
  EXPECT_EQ(job_settings.text("algorithm"), "all_reduce=two_shot,broadcast=tree");
  EXPECT_TRUE(job_settings.flag("insecure"));
  EXPECT_EQ(job_settings.text("spin"), "1000");  // the last one, as whoever reads it wants it
  EXPECT_EQ(why("\n\nspin = -1"),
            path.string() + ":3: spin: '-1': allowed is 0 to 1000000, or auto");
  EXPECT_EQ(why("# a\nbackend shm"),
            path.string() + ":2: expected 'name = value', got 'backend shm'");
  EXPECT_NE(why("parts = \"a").find(":1: a quote is missing"), std::string::npos);
  EXPECT_NE(why("parts = 'a' b").find(":1: a quote is missing"), std::string::npos);
  EXPECT_EQ(why("seed = 1").find(path.string() + ":1: seed: a setting of the trainer"), 0U);
  EXPECT_EQ(read("Bucket-Bytes = 4MB").bytes("bucket_bytes"), 4U << 20);
  std::filesystem::remove(path);
}

// Every default and every end of a range is a value, and every word is one for its reader.
TEST(Settings, EveryDefaultAndLimitIsAValidValue) {
  std::set<std::string_view> names;
  for (const Setting& one : setting_table()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name << " is there twice";
    EXPECT_EQ(check_setting(one, one.fallback, one.name), one.fallback);
    for (const std::string& word : split(one.words, ' '))
      EXPECT_EQ(check_setting(one, word, one.name), word);
    for (const std::string_view end : {one.low, one.high}) {
      if (!end.empty()) check_setting(one, end, one.name);  // or throws
    }
    const bool has_range = one.type == SettingType::kInteger || one.type == SettingType::kNumber ||
                           one.type == SettingType::kBytes || one.type == SettingType::kDuration;
    EXPECT_EQ(has_range, !one.low.empty()) << one.name;
    EXPECT_FALSE(one.help.empty()) << one.name;
  }
  for (const std::string& word : job_setting_words("log_level"))
    EXPECT_NO_THROW(parse_log_level(word));
}

// Each means a setting that there is, or says what to use; none hides a name of ours.
TEST(Settings, NamesOfOtherProgramsMeanSomething) {
  for (const SettingAlias& alias : alias_table()) {
    EXPECT_EQ(look_up_alias(alias.name), &alias) << alias.name << " is there twice";
    EXPECT_FALSE(alias.program.empty());
    const Setting* meant = look_up_setting(alias.name);
    if (alias.setting.empty()) {
      EXPECT_EQ(meant, nullptr) << alias.name;
      EXPECT_EQ(message_of([&] { read_setting(alias.name, "x", "here"); }),
                fmt::format("here: {}", alias.meaning));
    } else {
      ASSERT_NE(meant, nullptr) << alias.name;
      EXPECT_EQ(meant->name, alias.setting);
    }
  }
  for (const RefusedWord& word : refused_words()) {
    const Setting* setting = look_up_setting(word.setting);
    ASSERT_NE(setting, nullptr) << word.setting;
    EXPECT_EQ(message_of([&] { check_setting(*setting, word.word, "x"); }),
              fmt::format("x: '{}': {}", word.word, word.why));
  }
}

TEST(Settings, NamesInAnySpellingAndUnitsOfOthers) {
  const auto read = [](const char* name, const char* value) {
    const ReadSetting found = read_setting(name, value, "x");
    return fmt::format("{}={}", found.setting.name, found.value);
  };
  EXPECT_EQ(read("--Batch-Size", "1e3"), "batch_size=1000");
  EXPECT_EQ(read("train-url", "s"), "model_dir=s");
  EXPECT_EQ(read("dataset_dir", "Data"), "data_dir=Data");
  EXPECT_EQ(read("fusion_threshold_mb", "0.5"), "bucket_bytes=524288");
  EXPECT_EQ(read("gloo-timeout-seconds", "1.5"), "timeout=1.5s");
  EXPECT_EQ(read("stall_check_shutdown_time_seconds", "0"), "stall_shutdown_time=365d");
  EXPECT_EQ(message_of([&] { read("fusion_threshold_mb", "-1"); }),
            "x: '-1': it is bucket_bytes here: allowed is 0 to 1TB");
  EXPECT_EQ(message_of([&] { read("dgc_momentum_type", "v"); }),
            "x: sparse gradient compression is not implemented yet");
  EXPECT_EQ(message_of([&] { read("momentum", "nan"); }),
            "x: 'nan' is not a number: allowed is 0 to 0.9999");
  EXPECT_EQ(message_of([&] { read("save_checkpoints_secs", "-1"); }),
            "x: '-1': allowed is at least 0");
}

TEST(Settings, AreExplainedByAnyName) {
  const std::string said = explain_setting("log-dir");
  for (const char* part : {"model_dir: folder", "output (of `horon train`)", "forgotten",
                           "train_url of MoXing", "train_dir of TensorFlow's slim"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_NE(explain_setting("batch_size").find("for MoXing's batch_size, which is per GPU"),
            std::string::npos);
  EXPECT_NE(explain_setting("bucket_bytes").find("HOROVOD_FUSION_THRESHOLD"), std::string::npos);
  EXPECT_NE(explain_setting("use_fp16").find("has no meaning here"), std::string::npos);
  EXPECT_NE(message_of([] { explain_setting("batchsize"); }).find("'batch_size'"),
            std::string::npos);
}

TEST(Registry, NamesWhatThereIs) {
  Registry<int> registry("codec");
  registry.add("none", 1);
  registry.add("fp16", 2);
  EXPECT_EQ(registry.find("fp16"), 2);
  EXPECT_EQ(message_of([&] { registry.find("fp61"); }),
            "unknown codec 'fp61', did you mean 'fp16'?; there are: fp16, none");
  EXPECT_THROW(registry.add("none", 3), UsageError);
}

TEST(Queue, DrainsAfterClose) {
  BlockingQueue<int> queue;
  std::vector<int> seen;
  {
    auto reader = start_thread("reader", [&](const std::stop_token&) {
      while (auto item = queue.pop()) seen.push_back(*item);
    });
    for (int i = 0; i < 100; ++i) queue.push(i);
    queue.close();
  }
  EXPECT_EQ(seen.size(), 100U);
  EXPECT_FALSE(queue.push(1));
}

TEST(Signals, FirstOneRequestsAStop) {
  const StopOnSignal stop;
  EXPECT_FALSE(stop.token().stop_requested());
  kill(getpid(), SIGTERM);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (!stop.token().stop_requested() && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(stop.token().stop_requested());
}

TEST(Parts, AnAbsentOneSaysWhereItWasLookedFor) {
  const std::string message = message_of([] { Part::open("nothing", {"/nowhere"}); });
  EXPECT_EQ(message, "part 'nothing' cannot be opened (/nowhere/libhoron_nothing.so: not there)");
}

TEST(Parts, BesideTheLibraryThenBesideTheProgramThenInThePackage) {
  using Folders = std::vector<std::string>;
  EXPECT_EQ(list_part_folders("/p/lib/libhoron.so", "/usr/bin/python3", ""),
            (Folders{"/p/lib", "/p/lib/horon", "/usr/bin", "/usr/lib", "/usr/lib/horon"}));
  EXPECT_EQ(list_part_folders("/home/me/program", "/home/me/program", "/p/lib/horon"),
            (Folders{"/home/me", "/home/lib", "/home/lib/horon", "/p/lib/horon"}));
  EXPECT_EQ(list_part_folders("/p/lib/libhoron.so", "/p/bin/program", "/p/lib/horon"),
            (Folders{"/p/lib", "/p/lib/horon", "/p/bin"}));
  EXPECT_EQ(part_folders("/given"), Folders{"/given"});
  EXPECT_EQ(part_folders("").front(),  // this code is in the program itself
            std::filesystem::read_symlink("/proc/self/exe").parent_path());
}

TEST(Parts, AForeignLibraryIsRefused) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("parts-{}", getpid());
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "libhoron_cuda.so") << "not a library";
  EXPECT_NE(message_of([&] { Part::open("cuda", {folder}); }).find("too short"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Log, OneEventIsOneLine) {
  testing::internal::CaptureStderr();
  const Log log(LogLevel::kInfo, "rank 3/8");
  log.info("first\nsecond {}", 7);
  log.debug("not shown");
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_NE(shown.find("[rank 3/8] first | second 7\n"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("not shown"), std::string::npos);
  EXPECT_THROW(parse_log_level("loud"), UsageError);
}

}  // namespace
}  // namespace horon
