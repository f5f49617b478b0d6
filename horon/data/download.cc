#include "horon/data/download.h"

#include <fmt/format.h>

#include "horon/base/registry.h"
#include "horon/data/dataset.h"
#include "horon/data/format/archive.h"
#include "horon/file/copy.h"
#include "horon/file/digest.h"
#include "horon/file/file.h"

namespace horon {
namespace {

struct Source {
  std::string name;
  std::string md5;
  bool is_archive = false;
};
struct Home {
  std::string url;
  std::vector<Source> files;
};

const Registry<Home>& homes() {
  static const Registry<Home> kRegistry = [] {
    Registry<Home> all("data set to download");
    const std::string toronto = "https://www.cs.toronto.edu/~kriz/";
    all.add("cifar10",
            {toronto, {{"cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", true}}});
    all.add("cifar100",
            {toronto, {{"cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", true}}});
    all.add("mnist", {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                      {{"train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"},
                       {"train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"},
                       {"t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"},
                       {"t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"}}});
    return all;
  }();
  return kRegistry;
}

void fetch(const std::string& url, const std::string& path, const std::string& name,
           const DownloadOptions& options) {
  const auto info = file::stat(url);
  if (!info) throw IoError(fmt::format("{}: it is not there", url));
  uint64_t done = 0;
  file::copy(url, path,
             {.verifies = false,  // the checksum is looked at below
              .on_bytes =
                  [&](uint64_t bytes) {
                    done += bytes;
                    if (options.progress) options.progress(name, done, info->bytes);
                  },
              .stop = options.stop});
}

}  // namespace

std::vector<std::string> downloadable() { return homes().names(); }

std::vector<std::string> download_dataset(const DownloadOptions& options) {
  const Home& home = homes().find(options.name);
  std::vector<std::string> files;
  for (const Source& source : home.files) {
    const auto known = options.checksums.find(source.name);
    const std::string& md5 = known != options.checksums.end() ? known->second : source.md5;
    const std::string path = file::join_path(options.folder, source.name);
    if (!file::exists(path) || file::digest_of(path, "md5") != md5) {
      fetch(file::join_path(options.mirror.empty() ? home.url : options.mirror, source.name), path,
            source.name, options);
      const std::string got = file::digest_of(path, "md5");
      if (got != md5) {
        file::remove(path);
        throw CorruptRecord(path, fmt::format("MD5 {} instead of {}; it was removed", got, md5));
      }
    }
    files.push_back(path);
    if (!source.is_archive) continue;
    for (const std::string& one : unpack_archive(path, options.folder)) files.push_back(one);
  }
  return files;
}

}  // namespace horon
