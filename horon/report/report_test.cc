#include <gtest/gtest.h>

#include <regex>

#include "horon/base/error.h"
#include "horon/file/file.h"
#include "horon/report/console.h"
#include "horon/report/curves.h"
#include "horon/report/json_lines.h"
#include "horon/report/plot.h"

namespace horon::report {
namespace {

Event a_step(uint64_t step, double loss) {
  return {.kind = EventKind::kStep,
          .step = step,
          .epoch = static_cast<double>(step) / 40,
          .numbers = {{"loss", loss},
                      {"top1", 0.25},
                      {"learning_rate", 0.1},
                      {"seconds", 1.5},
                      {"images_per_s", 1234.4},
                      {"seconds_left", 7},
                      {"total_steps", 400}}};
}

Event an_evaluation() {
  return {.kind = EventKind::kEvaluation,
          .step = 40,
          .epoch = 1,
          .numbers = {{"test_loss", 0.75}, {"test_top1", 0.5}, {"test_top5", 1}, {"seconds", 2}},
          .metrics = {{"norm", 12.5}},
          .texts = {{"split", "test"}}};
}

Event an_epoch() {
  return {.kind = EventKind::kEpoch, .step = 40, .epoch = 1, .metrics = {{"norm", 12.5}}};
}

std::string shown(const ConsoleOptions& options, const std::vector<Event>& events) {
  testing::internal::CaptureStdout();
  Screen screen(true);
  Console console(screen, options);
  for (const Event& event : events) console.write(event);
  return testing::internal::GetCapturedStdout();
}

TEST(JsonLines, AreTheLinesThatRunsHaveAlwaysWritten) {
  EXPECT_EQ(to_line(a_step(20, 2.25)),
            R"({"epoch":0.5,"learning_rate":0.1,"loss":2.25,"seconds":1.5,"step":20,"top1":0.25})");
  EXPECT_EQ(
      to_line(an_evaluation()),
      R"({"epoch":1.0,"seconds":2.0,"step":40,"test_loss":0.75,"test_top1":0.5,"test_top5":1.0})");
  EXPECT_EQ(to_line(an_epoch()), R"({"epoch":1.0,"norm":12.5,"step":40})");
  for (const EventKind kind : {EventKind::kBegin, EventKind::kCheckpoint, EventKind::kEnd})
    EXPECT_EQ(to_line({.kind = kind, .numbers = {{"seconds", 1}}}), "");
  EXPECT_EQ(to_line({.kind = EventKind::kEpoch}), "");  // no metrics
}

TEST(JsonLines, AreReadBack) {
  for (const Event& event : {a_step(20, 2.25), an_evaluation(), an_epoch()}) {
    const auto back = from_line(to_line(event));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->kind, event.kind);
    EXPECT_EQ(back->step, event.step);
    EXPECT_EQ(back->epoch, event.epoch);
    EXPECT_EQ(back->texts, event.texts);
    for (const auto& [name, value] : back->numbers) EXPECT_EQ(value, event.number(name)) << name;
    EXPECT_EQ(to_line(*back), to_line(event));
  }
  for (const char* torn : {"", "{", "5", "[]", R"({"step":1})", R"({"epoch":"x"})", R"({"epo)"})
    EXPECT_FALSE(from_line(torn)) << torn;
}

TEST(JsonLines, AreOfEveryNthStepAndAFullDiskCostsLinesOnly) {
  const std::string path = "mem://report_test/log.jsonl";
  JsonLines log(path, 20, [](const std::string& what) { FAIL() << what; });
  for (uint64_t step = 1; step <= 40; ++step) log.write(a_step(step, 1));
  log.write(an_evaluation());
  JsonLines never(path, 0, [](const std::string& what) { FAIL() << what; });
  never.write(a_step(20, 1));
  std::vector<std::string> kinds;
  read_log(path, [&](const Event& event) {
    kinds.push_back(std::to_string(event.step) +
                    (event.kind == EventKind::kStep ? " step" : " other"));
  });
  EXPECT_EQ(kinds, (std::vector<std::string>{"20 step", "40 step", "40 other"}));

  std::vector<std::string> complaints;
  JsonLines nowhere("/proc/nowhere/log.jsonl", 1,
                    [&](const std::string& what) { complaints.push_back(what); });
  nowhere.write(a_step(1, 1));
  nowhere.write(a_step(2, 1));
  ASSERT_EQ(complaints.size(), 1U);  // once
  EXPECT_TRUE(complaints[0].starts_with("some log lines could not be written: "));
}

TEST(Console, PrintsStepsAndEvaluations) {
  EXPECT_EQ(shown({.every = 20}, {a_step(19, 1), a_step(20, 2.25), an_epoch(), an_evaluation()}),
            "step 20/400  epoch 0.50  loss 2.2500  rate 0.1  1234 images/s\n"
            "epoch  1.00  step     40  test loss 0.7500  top-1 50.00 %  top-5 100.00 %  norm "
            "12.5\n");
  EXPECT_EQ(shown({.every = 0}, {a_step(20, 2.25)}), "");
  EXPECT_EQ(shown({.every = 0, .hex_loss = true}, {a_step(3, 2.25)}), "step 3 loss 0x1.2p+1\n");
}

TEST(Console, SummaryHasOnlyTheNumbersOfTheEvent) {
  Event end{.kind = EventKind::kEnd,
            .step = 40,
            .epoch = 1,
            .numbers = {{"ranks", 2}, {"batch_size", 50}},
            .texts = {{"model", "lenet"}, {"dataset", "shapes10"}, {"log", "run/log.jsonl"}}};
  EXPECT_EQ(shown({}, {end}),
            "\n  model         lenet on shapes10\n  ranks         2, global batch 50\n");
  end.numbers.insert({{"seconds", 2},
                      {"images_per_s", 1000},
                      {"train_loss", 0.5},
                      {"test_loss", 0.25},
                      {"test_top1", 0.75},
                      {"test_top5", 1},
                      {"test_samples", 2000},
                      {"best_top1", 0.8},
                      {"input_bytes", 3U << 20},
                      {"corrupt_records", 2},
                      {"interrupted", 1}});
  end.texts.insert({{"checkpoint", "run/ckpt-00000040"},
                    {"best", "run/best/ckpt-00000020"},
                    {"corrupt_reason", "torn"},
                    {"go_on", "horon train --model_dir run"}});
  EXPECT_EQ(shown({}, {end}),
            "\n  model         lenet on shapes10\n  ranks         2, global batch 50\n"
            "  steps         40 (1.0 epochs) in 2.0 s, 1000 images/s\n"
            "  training loss 0.5000\n"
            "  test          top-1 75.00 %, top-5 100.00 %, loss 0.2500, 2000 samples\n"
            "  checkpoint    run/ckpt-00000040\n"
            "  best          run/best/ckpt-00000020 (top-1 80.00 %)\n"
            "  input         3 MB of memory on this rank\n"
            "  skipped       2 corrupt record(s): torn\n"
            "  log           run/log.jsonl\n"
            "\ninterrupted; to resume: horon train --model_dir run\n");
  end.numbers["seconds_encrypting"] = 0.03;  // of 2
  EXPECT_EQ(shown({}, {end}).find("encryption"), std::string::npos);
  end.numbers["seconds_encrypting"] = 0.1;
  EXPECT_NE(
      shown({}, {end}).find("  encryption    0.1 s, 5 % of the run; --wire plain turns it off"),
      std::string::npos);
}

size_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()));
}

// A run that was resumed has told of a step twice; a line was torn.
TEST(Curves, AreDrawnFromTheLog) {
  const std::string run = "mem://report_test/run";
  std::string log;
  for (const auto& [step, loss] : {std::pair{20, 3.0}, {40, 2.0}, {40, 1.0}, {60, 0.5}})
    log += to_line(a_step(static_cast<uint64_t>(step), loss)) + "\n";
  log += to_line(an_evaluation()) + "\n{\"epoch\": 2, \"lo";
  file::append(log_of(run), log);
  const std::string one = draw_runs({run});
  EXPECT_EQ(count(one, "<path d=\"M[^L]*\""), 2U);  // a single evaluation: two curves of it
  EXPECT_EQ(count(one, "<path d=\"M[^L]*L[^L]*L[^L]*\""), 1U);  // three epochs of the training loss
  EXPECT_EQ(count(one, ">training<"), 1U);
  EXPECT_EQ(count(one, ">validation<"), 0U);
  EXPECT_EQ(count(draw_runs({run, run}), ">run training<"), 2U);
  EXPECT_THROW(draw_runs({"mem://report_test/none"}), UsageError);
  file::append("mem://report_test/other/log.jsonl", "{}\n");
  EXPECT_THROW(draw_runs({"mem://report_test/other"}), UsageError);
}

}  // namespace
}  // namespace horon::report
