#include "horon/data/pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/text.h"
#include "horon/data/format/example.h"
#include "horon/data/format/tfrecord.h"
#include "horon/data/open_dataset.h"
#include "horon/file/file.h"

namespace horon {
namespace {

std::shared_ptr<Dataset> shapes(uint64_t samples) {
  DatasetRequest request;
  request.name = "shapes10";
  request.samples = samples;
  return open_dataset(request);
}

PipelineOptions options_for(std::shared_ptr<Dataset> set, uint64_t batch) {
  PipelineOptions options;
  options.dataset = std::move(set);
  options.recipe = find_recipe("cifar", true, 32, 32);
  options.order.seed = 17;
  options.batch = batch;
  options.epochs = 1;
  return options;
}

// sample -> hash of its pixels and label; each must come once.
using Seen = std::map<uint64_t, uint64_t>;
void add(const Batch& batch, Seen& seen) {
  const uint64_t each = batch.count() == 0 ? 0 : batch.pixels.bytes() / batch.count();
  for (uint64_t i = 0; i < batch.count(); ++i) {
    const auto* at = static_cast<const char*>(batch.pixels.data) + i * each;
    const uint64_t hash = hash_bytes(at, each, static_cast<uint64_t>(batch.labels[i]) + 1);
    ASSERT_TRUE(seen.emplace(batch.samples[i], hash).second) << batch.samples[i] << " came twice";
  }
}

TEST(Pipelines, PixelsAreTheSameOnAnyNumberOfThreadsAndRanks) {
  const auto set = shapes(1003);
  for (const char* recipe : {"cifar", "cifarnet", "vgg"}) {
    Seen reference;
    for (const auto& [threads, ranks] :
         {std::pair(1, 1), std::pair(8, 1), std::pair(1, 3), std::pair(2, 3)}) {
      Seen seen;
      for (int rank = 0; rank < ranks; ++rank) {
        PipelineOptions options = options_for(set, 100);
        options.recipe = find_recipe(recipe, true, 32, 32);
        options.threads = threads;
        options.rank = rank;
        options.ranks = ranks;
        options.prefetch = 3;
        Pipeline pipeline(options);
        while (const auto batch = pipeline.next()) {
          EXPECT_EQ(batch->epoch, 0U);
          add(*batch, seen);
        }
        EXPECT_FALSE(pipeline.next());
      }
      EXPECT_EQ(seen.size(), 1003U);
      if (reference.empty()) reference = seen;
      EXPECT_EQ(seen, reference) << recipe << ", " << threads << " threads, " << ranks << " ranks";
    }
  }
}

TEST(Pipelines, ResumeAtAPositionOnAnotherNumberOfRanks) {
  const auto set = shapes(500);
  Seen reference;
  PipelineOptions whole = options_for(set, 64);
  Pipeline one(whole);
  while (const auto batch = one.next()) add(*batch, reference);
  Seen seen;
  Position position;
  for (int rank = 0; rank < 2; ++rank) {  // three batches on two ranks
    PipelineOptions options = options_for(set, 64);
    options.rank = rank;
    options.ranks = 2;
    options.threads = 2;
    Pipeline pipeline(options);
    for (int i = 0; i < 3; ++i) {
      const auto batch = pipeline.next();
      add(*batch, seen);
      position = batch->after;
    }
  }
  EXPECT_EQ(position, (Position{0, 192}));
  for (int rank = 0; rank < 5; ++rank) {  // the rest on five
    PipelineOptions options = options_for(set, 64);
    options.rank = rank;
    options.ranks = 5;
    options.start = position;
    Pipeline pipeline(options);
    while (const auto batch = pipeline.next()) add(*batch, seen);
  }
  EXPECT_EQ(seen, reference);
}

// A position behind the usable end is the beginning of the next epoch, in that epoch's order.
TEST(Pipelines, APositionAtTheEndIsTheNextEpoch) {
  PipelineOptions options = options_for(shapes(10), 4);
  options.drops_remainder = true;
  options.epochs = 2;
  options.start = {0, 8};
  Pipeline late(options);
  options.start = {1, 0};
  Pipeline fresh(options);
  for (int i = 0; i < 2; ++i) {
    const auto a = late.next();
    const auto b = fresh.next();
    EXPECT_EQ(a->samples, b->samples);
    EXPECT_EQ(a->epoch, 1U);
  }
  EXPECT_FALSE(late.next());
}

TEST(Pipelines, EpochsDifferAndMemoryIsBounded) {
  PipelineOptions options = options_for(shapes(200), 50);
  options.epochs = 3;
  options.prefetch = 2;
  options.threads = 3;
  Pipeline pipeline(options);
  EXPECT_EQ(pipeline.memory_bytes(), 2U * 50 * 3 * 32 * 32 * 4);
  std::vector<std::vector<uint64_t>> orders(3);
  int batches = 0;
  while (const auto batch = pipeline.next()) {
    ++batches;
    EXPECT_EQ(batch->global_count, 50U);
    EXPECT_EQ(batch->shard_sizes, std::vector<uint64_t>{50});
    orders[batch->epoch].insert(orders[batch->epoch].end(), batch->samples.begin(),
                                batch->samples.end());
  }
  EXPECT_EQ(batches, 12);
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_EQ(std::set<uint64_t>(orders[2].begin(), orders[2].end()).size(), 200U);
  EXPECT_EQ(pipeline.report().samples, 600U);
}

TEST(Pipelines, StopAtAnyMoment) {
  const auto set = shapes(2000);
  const auto hash_of = [](const Batch& batch) {
    return hash_bytes(batch.pixels.data, batch.pixels.bytes());
  };
  std::vector<uint64_t> hashes;
  Pipeline reference(options_for(set, 128));
  for (int i = 0; i < 3; ++i) hashes.push_back(hash_of(*reference.next()));
  for (int i = 0; i < 30; ++i) {
    PipelineOptions options = options_for(set, 128);
    options.threads = 1 + i % 5;
    options.epochs = 0;
    std::optional<Batch> kept;
    {
      Pipeline pipeline(options);
      for (int batch = 0; batch < i % 4; ++batch) kept = pipeline.next();
    }
    if (!kept) continue;
    EXPECT_EQ(kept->count(), 128U);  // still there, though the pipeline is not
    EXPECT_EQ(hash_of(*kept), hashes[static_cast<size_t>(i % 4 - 1)]);
  }
}

TEST(Pipelines, HoldingAllBatchesIsAnError) {
  PipelineOptions options = options_for(shapes(100), 10);
  options.prefetch = 2;
  Pipeline pipeline(options);
  const auto one = pipeline.next();
  const auto two = pipeline.next();
  EXPECT_THROW(pipeline.next(), UsageError);
}

TEST(Pipelines, MoreRanksThanSamplesReadEachSampleOnce) {
  Seen seen;
  for (int rank = 0; rank < 7; ++rank) {
    PipelineOptions options = options_for(shapes(10), 4);
    options.rank = rank;
    options.ranks = 7;
    Pipeline pipeline(options);
    int batches = 0;
    while (const auto batch = pipeline.next()) {
      add(*batch, seen);
      ++batches;
    }
    EXPECT_EQ(batches, 3);  // as many as the others, even with nothing to read
  }
  EXPECT_EQ(seen.size(), 10U);
}

TEST(Pipelines, BadRecordsStopItOrAreCounted) {
  const TempFolder folder;
  const std::string path = folder.path() + "/train.tfrecords";
  RecordWriter writer(path);
  const auto good = [](int label) {
    return ExampleBuilder()
        .add_bytes("image", std::string(3072, static_cast<char>(label)))
        .add_integer("label", label)
        .build();
  };
  for (int i = 0; i < 40; ++i)
    writer.write(i % 10 == 7 ? ExampleBuilder().add_integer("label", 1).build() : good(i % 10));
  writer.commit();
  DatasetRequest request;
  request.name = "tfrecord";
  request.folder = folder.path();
  PipelineOptions options = options_for(open_dataset(request), 16);
  try {
    Pipeline pipeline(options);
    while (pipeline.next()) {
    }
    FAIL() << "nothing was said";
  } catch (const CorruptRecord& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("train.tfrecords, record"), std::string::npos) << text;
    EXPECT_NE(text.find("at offset"), std::string::npos) << text;
    EXPECT_NE(text.find("--max_corrupt_records"), std::string::npos) << text;
  }
  options.max_corrupt_records = 4;
  Seen seen;
  Pipeline pipeline(options);
  uint64_t shards = 0;
  while (const auto batch = pipeline.next()) {
    add(*batch, seen);
    for (const uint64_t size : batch->shard_sizes) shards += size;
  }
  EXPECT_EQ(seen.size(), 36U);
  EXPECT_EQ(shards, 36U);
  EXPECT_EQ(pipeline.report().corrupt, 4U);
  EXPECT_EQ(pipeline.report().reasons.size(), 4U);
  EXPECT_EQ(pipeline.report().corrupt_samples, (std::vector<uint64_t>{7, 17, 27, 37}));
  options.max_corrupt_records = 3;
  Pipeline strict(options);
  EXPECT_THROW(while (strict.next()){}, CorruptRecord);

  // However often they come.
  options.max_corrupt_records = 4;
  options.epochs = 5;
  Pipeline longer(options);
  uint64_t samples = 0;
  while (const auto batch = longer.next()) samples += batch->count();
  EXPECT_EQ(samples, 5U * 36);
  EXPECT_EQ(longer.report().corrupt, 4U);
}

// What was lost when the files were opened counts like a record.
TEST(Pipelines, DataLostOnOpeningCountsAsCorruptRecords) {
  const TempFolder folder;
  for (int part = 0; part < 3; ++part) {
    const std::string path = fmt::format("{}/train-{:05}-of-00003", folder.path(), part);
    RecordWriter writer(path);
    for (int i = 0; i < 10; ++i)
      writer.write(ExampleBuilder()
                       .add_bytes("image", std::string(3072, static_cast<char>(i)))
                       .add_integer("label", part == 2 && i == 9 ? 77 : i)
                       .build());
    writer.commit();
    const std::string bytes = file::read(path);
    if (part < 2) file::write(path, bytes.substr(0, bytes.size() * 6 / 10 + 1));
  }
  DatasetRequest request;
  request.name = "tfrecord";
  request.folder = folder.path();
  PipelineOptions options = options_for(open_dataset(request), 8);
  options.epochs = 2;
  for (const uint64_t allowed : {0U, 1U}) {
    options.max_corrupt_records = allowed;
    EXPECT_THROW(Pipeline pipeline(options), CorruptRecord);
  }
  options.max_corrupt_records = 2;
  {
    Pipeline pipeline(options);
    EXPECT_THROW(while (pipeline.next()){}, CorruptRecord);  // and the bad label
  }
  options.max_corrupt_records = 3;
  Pipeline pipeline(options);
  uint64_t samples = 0;
  while (const auto batch = pipeline.next()) samples += batch->count();
  EXPECT_EQ(samples, 2U * 21);
  const Pipeline::Report report = pipeline.report();
  EXPECT_EQ(report.lost, 2U);
  EXPECT_EQ(report.corrupt, 3U);
  EXPECT_EQ(report.corrupt_samples, std::vector<uint64_t>{21});
  EXPECT_NE(report.reasons.front().find("the rest of the file is lost"), std::string::npos);
}

TEST(Pipelines, MemoryUseIsReported) {
  PipelineOptions options = options_for(shapes(200), 50);
  options.prefetch = 4;
  options.recipe = find_recipe("vgg", true, 16, 16);
  Pipeline pipeline(options);
  EXPECT_EQ(pipeline.report().memory.cap, 4U * 50 * 3 * 16 * 16 * 4);
  EXPECT_EQ(pipeline.report().memory.dataset, 200U * (3072 + 8));
  std::vector<Batch> held;
  for (int i = 0; i < 4; ++i) held.push_back(*pipeline.next());
  EXPECT_EQ(pipeline.report().memory.peak, pipeline.memory_bytes());  // all are with us
  EXPECT_GE(pipeline.report().memory.threads, 3U * 32 * 4);           // a line of levels at least

  options.prefetch = 100;  // of which four are ever used
  Pipeline little(options);
  while (little.next()) {
  }
  EXPECT_GE(little.report().memory.peak, little.memory_bytes() / 100);
  EXPECT_LE(little.report().memory.peak, little.memory_bytes() / 25);
}

// What a network must learn cannot be read off single pixels.
TEST(Shapes, ALinearClassifierLearnsLessThanHalf) {
  constexpr size_t kInputs = 3072;
  std::vector<float> weights(10 * (kInputs + 1), 0.0F);
  const auto scores = [&](const float* x, std::array<float, 10>& out) {
    for (size_t k = 0; k < 10; ++k) {
      const float* w = weights.data() + k * (kInputs + 1);
      float sum = w[kInputs];
      for (size_t i = 0; i < kInputs; ++i) sum += w[i] * x[i];
      out[k] = sum;
    }
  };
  PipelineOptions options = options_for(shapes(3000), 100);
  options.recipe = find_recipe("cifar", false, 32, 32);
  options.epochs = 6;
  Pipeline train(options);
  std::array<float, 10> out = {};
  while (const auto batch = train.next()) {
    for (uint64_t n = 0; n < batch->count(); ++n) {
      const float* x = static_cast<const float*>(batch->pixels.data) + n * kInputs;
      scores(x, out);
      float total = 0;
      const float most = *std::max_element(out.begin(), out.end());
      for (float& one : out) total += one = std::exp(one - most);
      for (size_t k = 0; k < 10; ++k) {
        const float error =
            out[k] / total - (static_cast<int64_t>(k) == batch->labels[n] ? 1.0F : 0.0F);
        float* w = weights.data() + k * (kInputs + 1);
        for (size_t i = 0; i < kInputs; ++i) w[i] -= 2e-4F * error * x[i];
        w[kInputs] -= 2e-4F * error;
      }
    }
  }
  DatasetRequest request;
  request.name = "shapes10";
  request.split = "test";
  request.samples = 1000;
  options.dataset = open_dataset(request);
  options.epochs = 1;
  Pipeline test(options);
  int right = 0;
  while (const auto batch = test.next()) {
    for (uint64_t n = 0; n < batch->count(); ++n) {
      scores(static_cast<const float*>(batch->pixels.data) + n * kInputs, out);
      right += std::max_element(out.begin(), out.end()) - out.begin() == batch->labels[n] ? 1 : 0;
    }
  }
  EXPECT_LT(right, 500);
  EXPECT_GT(right, 60);
}

}  // namespace
}  // namespace horon
