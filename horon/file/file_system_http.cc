#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/version.h"
#include "horon/file/file_system.h"

namespace horon::file {
namespace {

using Piece = std::function<void(std::span<const std::byte>)>;

struct Answer {
  long status = 0;
  int64_t length = -1;  // of the whole file; -1: unknown
  int64_t modified = -1;
};

// What a transfer does with the bytes; kept outside curl's C callbacks.
struct Sink {
  const Piece* piece = nullptr;
  uint64_t skip = 0;           // a server that ignores ranges sends these again
  uint64_t left = UINT64_MAX;  // wanted; the transfer is cut behind them
  std::exception_ptr error;
  CURL* handle = nullptr;
  uint64_t offset = 0;
  bool looked = false;
};

// "bytes 100-199/1000" begins at 100.
bool starts_at(CURL* handle, uint64_t offset) {
  curl_header* header = nullptr;
  if (curl_easy_header(handle, "Content-Range", 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
    return false;
  return std::string(header->value).starts_with(fmt::format("bytes {}-", offset));
}

size_t on_bytes(char* data, size_t, size_t count, void* user) {
  Sink& sink = *static_cast<Sink*>(user);
  if (!std::exchange(sink.looked, true)) {
    long status = 0;
    curl_easy_getinfo(sink.handle, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400) sink.left = 0;
    if (status == 200) sink.skip = sink.offset;
    if (status == 206 && !starts_at(sink.handle, sink.offset)) {
      sink.error =
          std::make_exception_ptr(IoError("the server sent a different range than requested"));
      return 0;
    }
  }
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), count);
  const size_t skipped = std::min<uint64_t>(sink.skip, bytes.size());
  sink.skip -= skipped;
  bytes = bytes.subspan(skipped);
  const bool more = bytes.size() > sink.left;  // more than requested
  bytes = bytes.first(std::min<uint64_t>(bytes.size(), sink.left));
  try {
    if (!bytes.empty()) (*sink.piece)(bytes);
  } catch (...) {
    sink.error = std::current_exception();
    return 0;
  }
  sink.left -= bytes.size();
  return more ? 0 : count;  // 0: enough
}

// One connection, kept open between requests. One thread at a time.
class Client {
 public:
  Client() : handle_(curl_easy_init()) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    if (handle_ == nullptr) throw IoError("http: no memory");
  }
  ~Client() { curl_easy_cleanup(handle_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Answer head(const std::string& url) {
    prepare(url);
    curl_easy_setopt(handle_, CURLOPT_NOBODY, 1L);
    return perform(url);
  }

  // [offset, offset + count) of the file, or fewer at its end.
  void get(const std::string& url, uint64_t offset, uint64_t count, const Piece& piece) {
    if (count == 0) return;
    prepare(url);
    Sink sink{&piece, 0, count, nullptr, handle_, offset, false};
    const std::string range = count == UINT64_MAX
                                  ? fmt::format("{}-", offset)
                                  : fmt::format("{}-{}", offset, offset + count - 1);
    curl_easy_setopt(handle_, CURLOPT_RANGE, range.c_str());
    curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(handle_, CURLOPT_WRITEDATA, &sink);
    try {
      const Answer answer = perform(url, sink.left);
      if (answer.status == 416) return;  // behind the end
      check(url, answer.status);
    } catch (...) {
      if (sink.error) std::rethrow_exception(sink.error);
      throw;
    }
  }

  static void check(const std::string& url, long status) {
    if (status >= 200 && status < 300) return;
    throw IoError(fmt::format("{}: the server says {}{}", url, status,
                              status == 404   ? " (not found)"
                              : status == 403 ? " (forbidden)"
                                              : ""));
  }

 private:
  void prepare(const std::string& url) {
    curl_easy_reset(handle_);
    curl_easy_setopt(handle_, CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle_, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle_, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(handle_, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(handle_, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(handle_, CURLOPT_LOW_SPEED_LIMIT,
                     1024L);  // slower than this for so long: stuck
    curl_easy_setopt(handle_, CURLOPT_LOW_SPEED_TIME, 20L);
    curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle_, CURLOPT_FILETIME, 1L);
    curl_easy_setopt(handle_, CURLOPT_USERAGENT, fmt::format("horon/{}", kVersion).c_str());
    curl_easy_setopt(handle_, CURLOPT_ERRORBUFFER, reason_);
    reason_[0] = '\0';
  }

  Answer perform(const std::string& url, const uint64_t& left = kNever) {
    const CURLcode code = curl_easy_perform(handle_);
    Answer answer;
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &answer.status);
    const bool enough = code == CURLE_WRITE_ERROR && left == 0;
    if (code != CURLE_OK && !enough)
      throw IoError(
          fmt::format("{}: {}", url, reason_[0] != '\0' ? reason_ : curl_easy_strerror(code)));
    curl_off_t length = -1;
    curl_easy_getinfo(handle_, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    curl_off_t modified = -1;
    curl_easy_getinfo(handle_, CURLINFO_FILETIME_T, &modified);
    answer.length = length;
    answer.modified = modified;
    return answer;
  }

  static constexpr uint64_t kNever = 1;
  CURL* handle_;
  char reason_[CURL_ERROR_SIZE] = {};
};

// Each thread has a connection of its own.
Client& client() {
  thread_local Client mine;
  return mine;
}

class HttpReader final : public ReadableFile {
 public:
  explicit HttpReader(const std::string& url) : url_(url) {
    const Answer answer = client().head(url);
    Client::check(url, answer.status);
    if (answer.length < 0) throw IoError(url + ": the server does not say how large it is");
    size_ = static_cast<uint64_t>(answer.length);
  }
  const std::string& path() const override { return url_; }
  uint64_t size() const override { return size_; }
  size_t read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset >= size_) return 0;
    size_t got = 0;
    client().get(url_, offset, out.size(), [&](std::span<const std::byte> piece) {
      std::memcpy(out.data() + got, piece.data(), piece.size());
      got += piece.size();
    });
    if (got < std::min<uint64_t>(out.size(), size_ - offset))
      throw IoError(fmt::format("{}: ended after {} bytes", url_, offset + got));
    return got;
  }
  void read_all(uint64_t offset, const Piece& piece) const override {
    uint64_t at = offset;
    if (offset >= size_) return;
    client().get(url_, offset, size_ - offset, [&](std::span<const std::byte> bytes) {
      at += bytes.size();
      piece(bytes);
    });
    if (at != size_) throw IoError(fmt::format("{}: {} bytes instead of {}", url_, at, size_));
  }

 private:
  std::string url_;
  uint64_t size_ = 0;
};

class HttpFileSystem final : public FileSystem {
 public:
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    return std::make_unique<HttpReader>(path);
  }
  std::optional<FileInfo> stat(const std::string& path) override {
    const Answer answer = client().head(path);
    if (answer.status == 404 || answer.status == 410) return std::nullopt;
    Client::check(path, answer.status);
    const int64_t seconds = std::clamp<int64_t>(answer.modified, 0, 9'000'000'000);
    return FileInfo{path, static_cast<uint64_t>(std::max<int64_t>(answer.length, 0)), false, false,
                    seconds * 1'000'000'000};
  }
  std::vector<FileInfo> list(const std::string& folder) override {
    return refuse(folder), std::vector<FileInfo>();
  }
  std::unique_ptr<WritableFile> create(const std::string& path, const CreateOptions&,
                                       uint64_t&) override {
    refuse(path);
    return nullptr;
  }
  bool write_new(const std::string& path, std::string_view) override { return refuse(path), false; }
  void append(const std::string& path, std::span<const std::byte>) override { refuse(path); }
  void make_folder(const std::string& path) override { refuse(path); }
  void rename(const std::string& from, const std::string&) override { refuse(from); }
  void remove(const std::string& path) override { refuse(path); }

 private:
  static void refuse(const std::string& path) {
    throw UsageError(path + ": over http files are read, one by one; no lists, no writing");
  }
};

}  // namespace

std::unique_ptr<FileSystem> make_http_file_system() { return std::make_unique<HttpFileSystem>(); }

}  // namespace horon::file
