#include "horon/bench/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"
#include "horon/base/time.h"
#include "horon/bench/record.h"
#include "horon/data/format/example.h"
#include "horon/data/format/packed.h"
#include "horon/data/format/tfrecord.h"
#include "horon/data/image/augment.h"
#include "horon/data/image/choices.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/open_dataset.h"
#include "horon/data/pipeline.h"
#include "horon/data/random.h"
#include "horon/file/file.h"

namespace horon::bench {
namespace {

// Smooth shapes and fine grain: about 500 x 400 and 110 KB, as ImageNet's are on average.
Picture make_photograph(uint64_t number) {
  Draws draws(7, 0, number, 1);
  Picture picture{
      340 + static_cast<int>(draws.below(120)), 430 + static_cast<int>(draws.below(140)), 3, {}};
  float wave[6][5];
  for (auto& one : wave) {
    one[0] = draws.between(0.005F, 0.12F);
    one[1] = draws.between(-0.08F, 0.08F);
    one[2] = draws.between(0.0F, 6.3F);
    one[3] = draws.between(10.0F, 45.0F);
    one[4] = draws.between(0.0F, 2.1F);
  }
  const float grain = draws.between(9.0F, 17.0F);
  picture.pixels.resize(static_cast<size_t>(picture.height) * static_cast<size_t>(picture.width) *
                        3);
  size_t at = 0;
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      const float noise = draws.normal() * grain;
      for (int c = 0; c < 3; ++c) {
        float level = 120 + noise;
        for (const auto& one : wave)
          level +=
              one[3] * std::sin(one[0] * static_cast<float>(x) + one[1] * static_cast<float>(y) +
                                one[2] + one[4] * static_cast<float>(c));
        picture.pixels[at++] = static_cast<uint8_t>(std::clamp(level, 0.0F, 255.0F));
      }
    }
  }
  return picture;
}

// The plain way: everything is decoded, then each output value is computed by itself.
void plain_way(const Record& record, const Recipe& recipe, uint64_t sample, Picture& picture,
               float* out) {
  decode_jpeg(record.bytes, picture);
  const Choices choices = choose(recipe, {picture.height, picture.width}, 0, 0, sample);
  const auto place = [](const Axis& axis, int at, float& weight) {
    const float where = std::clamp(axis.origin + (static_cast<float>(at) + 0.5F) * axis.step - 0.5F,
                                   static_cast<float>(axis.low), static_cast<float>(axis.high));
    const int low = std::min(static_cast<int>(where), axis.high);
    weight = where - static_cast<float>(low);
    return low;
  };
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < recipe.height; ++y) {
      for (int x = 0; x < recipe.width; ++x) {
        float wx = 0;
        float wy = 0;
        const int x0 = place(choices.x, choices.flip ? recipe.width - 1 - x : x, wx);
        const int y0 = place(choices.y, y, wy);
        const int x1 = std::min(x0 + 1, choices.x.high);
        const int y1 = std::min(y0 + 1, choices.y.high);
        const auto level = [&](int64_t px, int64_t py) {
          return static_cast<float>(
              picture.pixels[static_cast<size_t>((py * picture.width + px) * 3 + c)]);
        };
        const float upper = level(x0, y0) + (level(x1, y0) - level(x0, y0)) * wx;
        const float lower = level(x0, y1) + (level(x1, y1) - level(x0, y1)) * wx;
        *out++ = (upper + (lower - upper) * wy - recipe.mean[static_cast<size_t>(c)]) /
                 recipe.deviation[static_cast<size_t>(c)];
      }
    }
  }
}

class Bench {
 public:
  explicit Bench(const InputOptions& options) : options_(options) {}

  void run() {
    make_pictures();
    jpeg();
    tfrecord();
    cifar();
    if (!options_.peers.empty()) peers();
  }
  nlohmann::json results = nlohmann::json::object();
  nlohmann::json summary = nlohmann::json::object();

 private:
  void make_pictures() {
    const uint64_t count = options_.quick ? 96 : 400;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < count; ++i) {
      files_.push_back(encode_jpeg(make_photograph(i), 93));
      bytes += files_.back().size();
      file::write(fmt::format("{}/jpeg/train/{:02}/{:05}.jpg", folder_.path(), i % 10, i),
                  files_.back());
    }
    results["pictures"] = count;
    results["mean_bytes"] = static_cast<double>(bytes) / static_cast<double>(count);
  }

  Record record(size_t i) const {
    return {{reinterpret_cast<const uint8_t*>(files_[i].data()), files_[i].size()},
            PixelForm::kJpeg,
            0,
            0,
            3,
            0};
  }

  // Three methods take turns on the same images; the floor is entropy decoding alone.
  void jpeg() {
    const Recipe recipe = find_recipe("official_resnet", true, 224, 224);
    Augmenter ours(recipe, {}, 0);
    Augmenter whole(recipe, {}, 0);
    whole.set_decodes_whole(true);
    std::vector<float> out(size_t{3} * 224 * 224);
    std::vector<float> check(out.size());
    Picture picture;
    std::vector<double> ours_s;
    std::vector<double> whole_s;
    std::vector<double> plain_s;
    std::vector<double> entropy_s;
    uint64_t different = 0;
    for (int round = 0; round < (options_.quick ? 3 : 7); ++round) {
      const auto time = [&](std::vector<double>& to, const auto& body) {
        const Stopwatch watch;
        for (size_t i = 0; i < files_.size(); ++i) body(i);
        to.push_back(watch.seconds() / static_cast<double>(files_.size()));
      };
      time(ours_s, [&](size_t i) { ours.apply(record(i), 0, i, out.data()); });
      time(whole_s, [&](size_t i) { whole.apply(record(i), 0, i, out.data()); });
      time(entropy_s, [&](size_t i) { read_jpeg_coefficients(record(i).bytes); });
      time(plain_s, [&](size_t i) { plain_way(record(i), recipe, i, picture, out.data()); });
    }
    for (size_t i = 0; i < files_.size(); ++i) {
      ours.apply(record(i), 0, i, out.data());
      whole.apply(record(i), 0, i, check.data());
      different += std::memcmp(out.data(), check.data(), out.size() * 4) == 0 ? 0 : 1;
    }
    const double mine = median(ours_s);
    results["jpeg"] = {{"rrc224_ms", mine * 1e3},
                       {"full_decode_ours_ms", median(whole_s) * 1e3},
                       {"full_decode_scalar_ms", median(plain_s) * 1e3},
                       {"pictures_that_differ", different},
                       {"megabytes_per_s", results["mean_bytes"].get<double>() / mine * 1e-6},
                       {"floor_entropy_decoding_alone_ms", median(entropy_s) * 1e3}};
    summary["jpeg_rrc224_images_per_s_core"] = 1.0 / mine;
    summary["jpeg_rrc224_per_core_over_full_decode"] = median(whole_s) / mine;
    summary["jpeg_rrc224_per_core_over_plain"] = median(plain_s) / mine;
  }

  // From the page cache, one thread: with checksums, and reading alone as the floor.
  void tfrecord() {
    const std::string path = folder_.path() + "/train.tfrecords";
    {
      RecordWriter writer(path);
      const uint64_t target = options_.quick ? 200U << 20 : 1000U << 20;
      for (uint64_t bytes = 0, i = 0; bytes < target; ++i) {
        const std::string& jpeg = files_[i % files_.size()];
        writer.write(ExampleBuilder()
                         .add_bytes("image/encoded", jpeg)
                         .add_integer("image/class/label", 1)
                         .build());
        bytes += jpeg.size();
      }
      writer.commit();
    }
    const double bytes = static_cast<double>(file::stat(path)->bytes);
    std::vector<double> checked;
    std::vector<double> bare;
    for (int round = 0; round < (options_.quick ? 3 : 7); ++round) {
      Stopwatch watch;
      RecordReader reader(file::open(path));
      std::span<const uint8_t> record;
      while (reader.next(record)) {
      }
      checked.push_back(watch.seconds());
      const auto file = file::open(path);
      std::vector<std::byte> buffer(1U << 20);
      watch.restart();
      for (uint64_t at = 0; at < file->size(); at += buffer.size()) file->read_at(at, buffer);
      bare.push_back(watch.seconds());
    }
    results["tfrecord"] = {{"megabytes", bytes * 1e-6},
                           {"GBps", bytes / median(checked) * 1e-9},
                           {"floor_read_alone_GBps", bytes / median(bare) * 1e-9}};
    summary["tfrecord_GBps_core"] = bytes / median(checked) * 1e-9;
  }

  // Batches of 128 with crop and flip, all cores; the floor is writing the batches' bytes.
  void cifar() {
    PackedPictures pictures;  // as large as CIFAR-10, laid out as in its files
    pictures.info = {"cifar10", "train", 32, 32, 3, 10, {}};
    pictures.form = PixelForm::kChw;
    pictures.labels.assign(50'000, 1);
    pictures.pixels.resize(size_t{50'000} * 3072);
    for (size_t i = 0; i < pictures.pixels.size(); ++i)
      pictures.pixels[i] = static_cast<uint8_t>(mix_bits(i));
    PipelineOptions options;
    options.dataset = make_packed(std::move(pictures));
    options.recipe = find_recipe("cifar", true, 32, 32);
    options.batch = 128;
    options.threads = static_cast<int>(usable_cores().size());
    options.prefetch = 4;
    Pipeline pipeline(options);
    const int batches = options_.quick ? 1000 : 8000;
    for (int i = 0; i < 200; ++i) pipeline.next();
    const Stopwatch watch;
    for (int i = 0; i < batches; ++i) pipeline.next();
    const double rate = 128.0 * batches / watch.seconds();
    std::vector<float> to(size_t{3072} * 128);
    std::vector<double> copies;
    for (int i = 0; i < 200; ++i) {
      const Stopwatch one;
      std::memset(to.data(), i, to.size() * 4);
      copies.push_back(one.seconds());
    }
    const double floor = 128.0 / median(copies) * options.threads;
    results["cifar"] = {
        {"threads", options.threads}, {"images_per_s", rate}, {"floor_memset_images_per_s", floor}};
    summary["cifar_images_per_s"] = rate;
  }

  // Other programs on the same files and cores; ours with as many threads.
  void peers() {
    DatasetRequest request;
    request.name = "image_folder";
    request.folder = folder_.path() + "/jpeg";
    PipelineOptions options;
    options.dataset = open_dataset(request);
    options.recipe = find_recipe("official_resnet", true, 224, 224);
    options.batch = 64;
    options.threads = static_cast<int>(usable_cores().size());
    options.prefetch = 4;
    const auto ours = [&] {
      Pipeline pipeline(options);
      pipeline.next();
      const int batches = options_.quick ? 10 : 40;
      const Stopwatch watch;
      for (int i = 0; i < batches; ++i) pipeline.next();
      return 64.0 * batches / watch.seconds();
    };
    const std::string out = folder_.path() + "/peers.json";
    const double before = ours();
    run_program({options_.peers, options_.peer_script, request.folder,
                 std::to_string(options.threads), out});
    const double after = ours();
    const auto theirs = nlohmann::json::parse(file::read(out));
    results["peers"] = {{"ours_before", before}, {"ours_after", after}, {"theirs", theirs}};
    for (const auto& [name, rate] : theirs["images_per_s"].items())
      summary[fmt::format("over_{}", name)] = (before + after) / 2 / rate.get<double>();
  }

  InputOptions options_;
  TempFolder folder_;
  std::vector<std::string> files_;
};

}  // namespace

Results run_input(const InputOptions& options) {
  Bench bench(options);
  bench.run();
  return {bench.results, bench.summary};
}

}  // namespace horon::bench
