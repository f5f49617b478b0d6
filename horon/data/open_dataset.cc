#include "horon/data/open_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "horon/base/registry.h"
#include "horon/base/text.h"
#include "horon/data/format/cifar.h"
#include "horon/data/format/image_folder.h"
#include "horon/data/format/made_up.h"
#include "horon/data/format/npy.h"
#include "horon/data/format/tfrecord_set.h"
#include "horon/data/order.h"

namespace horon {
namespace {

struct Entry {
  std::string about;
  std::function<std::shared_ptr<Dataset>(const DatasetRequest&)> open;
  bool has_validation = false;  // has files of its own for it
  bool is_made_up = false;      // of any number of samples
};

const Registry<Entry>& all_datasets() {
  static const Registry<Entry> kRegistry = [] {
    Registry<Entry> all("data set");
    all.add("cifar10", {"32x32 colour images, 10 classes: data_batch_*.bin or the python version",
                        [](const DatasetRequest& request) { return open_cifar(request, 10); }});
    all.add("cifar100", {"32x32 colour images, 100 classes: train.bin, test.bin, or python's",
                         [](const DatasetRequest& request) { return open_cifar(request, 100); }});
    all.add("mnist", {"28x28 grey digits, 10 classes: *-ubyte files, gzipped or not", open_mnist});
    all.add("tfrecord",
            {"TFRecord files of tf.Example: image/encoded + image/class/label, or image + label",
             open_tfrecord, true});
    all.add("image_folder", {"SPLIT/CLASS/*.jpg and *.png; classes by name or labels.txt",
                             open_image_folder, true});
    all.add("npy", {"SPLIT_images.npy (u8, N x H x W x C) and SPLIT_labels.npy", open_npy, true});
    all.add("shapes10",
            {"ten shapes of CIFAR's size, drawn here; needs no files", make_shapes10, false, true});
    all.add("synthetic", {"random images and labels, for measuring; needs no files", make_synthetic,
                          false, true});
    return all;
  }();
  return kRegistry;
}

constexpr uint64_t kSplitStream = 0x73706c6974ULL;

// The first `count` samples in a fixed random order: the same on every rank and in every run.
std::shared_ptr<Dataset> cut_validation(const std::shared_ptr<Dataset>& train, uint64_t count,
                                        bool validation) {
  if (count >= train->size())
    throw UsageError(fmt::format("--validation_split {}: the training set has {} samples", count,
                                 train->size()));
  const Permutation order(train->size(), kSplitStream, 0);
  std::vector<bool> is_held_out(train->size());
  for (uint64_t i = 0; i < count; ++i) is_held_out[order.at(i)] = true;
  std::vector<uint64_t> indices;
  for (uint64_t i = 0; i < train->size(); ++i) {
    if (is_held_out[i] == validation) indices.push_back(i);
  }
  return make_subset(train, std::move(indices), validation ? "validation" : "train");
}

}  // namespace

std::shared_ptr<Dataset> open_dataset(const DatasetRequest& request) {
  const Entry& entry = all_datasets().find(request.name);
  static const std::vector<std::string> kSplits = {"train", "validation", "test"};
  if (std::find(kSplits.begin(), kSplits.end(), request.split) == kSplits.end())
    throw UsageError(
        fmt::format("unknown split '{}'; there are: train, validation, test", request.split));
  if (request.samples > 0 && !entry.is_made_up)
    throw UsageError(fmt::format(
        "{} samples of {}: it has what is in its files; --samples and --train_samples are for "
        "shapes10 and synthetic",
        request.samples, request.name));
  const bool is_test = request.split == "test";
  if (request.validation_split == 0 || is_test) {
    if (request.split == "validation" && !entry.has_validation)
      throw NoSuchSplit(
          fmt::format("{} has no validation set of its own: cut one from the training set with "
                      "--validation_split N",
                      request.name));
    return entry.open(request);
  }
  DatasetRequest train = request;
  train.split = "train";
  return cut_validation(entry.open(train), request.validation_split, request.split == "validation");
}

std::map<std::string, std::string> dataset_names() {
  std::map<std::string, std::string> names;
  for (const std::string& name : all_datasets().names())
    names[name] = all_datasets().find(name).about;
  return names;
}

}  // namespace horon
