#pragma once

#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

namespace horon {

// What to download, from where and where to.
struct DownloadOptions {
  std::string name;  // "cifar10", "cifar100", "mnist"
  std::string folder;
  std::string mirror;  // other source of the files; empty: their home page
  std::map<std::string, std::string> checksums;  // file -> MD5, instead of the known ones
  std::function<void(const std::string& file, uint64_t bytes, uint64_t total)> progress;
  std::stop_token stop;
};

// Downloads missing files, resumes an earlier attempt, verifies and unpacks. Returns the files.
// UsageError for an unknown name, IoError for the network, CorruptRecord for a wrong checksum (the
// file is removed).
std::vector<std::string> download_dataset(const DownloadOptions& options);
std::vector<std::string> downloadable();

}  // namespace horon
