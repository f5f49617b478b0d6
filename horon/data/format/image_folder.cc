#include "horon/data/format/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "horon/base/text.h"
#include "horon/data/image/png.h"
#include "horon/file/file.h"

namespace horon {
namespace {

struct Item {
  std::string path;
  int64_t label = 0;
  uint64_t bytes = 0;  // when it was listed
  bool leads_nowhere = false;
};

bool is_picture(const std::string& path) {
  static const std::vector<std::string> kEndings = {".jpg",  ".jpeg", ".JPG",
                                                    ".JPEG", ".png",  ".PNG"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](const std::string& ending) { return path.ends_with(ending); });
}

class ImageFolder final : public Dataset {
 public:
  ImageFolder(DatasetInfo info, std::string folder, std::vector<Item> items)
      : info_(std::move(info)), folder_(std::move(folder)), items_(std::move(items)) {}
  const DatasetInfo& info() const override { return info_; }
  uint64_t size() const override { return items_.size(); }
  Record read(uint64_t index, std::vector<uint8_t>& scratch) const override {
    const Item& item = items_.at(index);
    if (item.leads_nowhere) throw CorruptRecord(item.path, "a dangling link");
    const auto file = file::open(item.path);
    if (file->size() > 256U << 20) throw CorruptRecord(item.path, "an image of more than 256 MB");
    scratch.resize(file->size());
    scratch.resize(file->read_at(0, std::as_writable_bytes(std::span(scratch))));
    return {scratch, is_png(scratch) ? PixelForm::kPng : PixelForm::kJpeg, 0, 0, 3, item.label};
  }
  std::string where(uint64_t index) const override { return items_.at(index).path; }
  uint64_t memory_bytes() const override {
    uint64_t bytes = 0;
    for (const Item& item : items_) bytes += sizeof(item) + item.path.capacity();
    return bytes;
  }
  uint64_t index_hash() const override {
    uint64_t hash = 0;
    for (const Item& item : items_) {
      const std::string_view name = std::string_view(item.path).substr(folder_.size());
      hash = hash_bytes(name.data(), name.size(), hash + item.bytes + 1);
    }
    return hash;
  }

 private:
  DatasetInfo info_;
  std::string folder_;
  std::vector<Item> items_;
};

// By name, never as the file system happens to list them. Training and test share the numbering.
std::vector<std::string> class_names(const std::string& folder, const std::string& split_folder) {
  for (const std::string& place : {folder, split_folder}) {
    const std::string labels = file::join_path(place, "labels.txt");
    if (file::exists(labels)) return read_class_names(labels);
  }
  std::set<std::string> names;
  const std::string train = file::join_path(folder, "train");
  for (const file::FileInfo& entry : file::list(file::exists(train) ? train : split_folder)) {
    if (entry.is_folder) names.insert(file::base_name(entry.path));
  }
  return {names.begin(), names.end()};
}

std::string split_folder(const DatasetRequest& request) {
  std::vector<std::string> names = {request.split};
  if (request.split == "validation") names.emplace_back("val");
  for (const std::string& name : names) {
    const std::string path = file::join_path(request.folder, name);
    if (file::exists(path)) return path;
  }
  // The folder of the training images itself.
  std::string own = request.folder;
  while (own.size() > 1 && own.ends_with('/')) own.pop_back();
  if (request.split == "train" && file::base_name(own) == "train" && file::exists(own)) return own;
  throw NoSuchSplit(
      fmt::format("image_folder: there is no folder '{}' in '{}'", request.split, request.folder));
}

}  // namespace

std::vector<std::string> read_class_names(const std::string& path) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  int number = 0;
  for (const std::string& line : split(file::read(path, 64U << 20), '\n')) {
    ++number;
    if (line.empty()) continue;
    const size_t colon = line.find(':');
    const auto index =
        colon == std::string::npos ? std::nullopt : parse_number(line.substr(0, colon));
    if (index && *index != static_cast<double>(names.size()))
      throw CorruptRecord(fmt::format("{}, line {}", path, number),
                          fmt::format("label {} where {} is next", *index, names.size()));
    std::string name(
        trim(index ? std::string_view(line).substr(colon + 1) : std::string_view(line)));
    if (!seen.insert(name).second)
      throw CorruptRecord(fmt::format("{}, line {}", path, number),
                          fmt::format("'{}' occurs twice", name));
    names.push_back(std::move(name));
  }
  return names;
}

std::shared_ptr<Dataset> open_image_folder(const DatasetRequest& request) {
  const std::string folder = split_folder(request);
  DatasetInfo info{"image_folder", request.split, 0, 0, 3, 0, class_names(request.folder, folder)};
  info.classes = static_cast<int>(info.class_names.size());
  std::vector<Item> items;
  for (const file::FileInfo& entry : file::list(folder)) {
    if (!entry.is_folder) continue;
    const std::string name = file::base_name(entry.path);
    const auto found = std::find(info.class_names.begin(), info.class_names.end(), name);
    if (found == info.class_names.end())
      throw UsageError(
          fmt::format("{}: class '{}' is not among the {} of the training set or labels.txt",
                      entry.path, name, info.classes));
    for (const file::FileInfo& one : file::list_tree(entry.path)) {
      if (one.is_folder)
        throw UsageError(fmt::format(
            "{}: a link to a folder inside of a class is not followed; make the class itself a "
            "link, or copy what is in it",
            one.path));
      if (is_picture(one.path))
        items.push_back({one.path, found - info.class_names.begin(), one.bytes, one.leads_nowhere});
    }
  }
  if (items.empty()) throw UsageError(fmt::format("{}: no .jpg or .png in its folders", folder));
  return std::make_shared<ImageFolder>(std::move(info), folder, std::move(items));
}

}  // namespace horon
