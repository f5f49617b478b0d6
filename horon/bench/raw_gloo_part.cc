// gloo::allreduce, in a part of its own.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include "horon/base/api.h"
#include "horon/base/version.h"
#include "horon/bench/raw_peer.h"

namespace horon::bench {
namespace {

constexpr auto kStart = std::chrono::seconds(30);

// Our store in the form that Gloo asks for.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  explicit GlooStore(std::shared_ptr<horon::Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(key, {data.begin(), data.end()}, Deadline::after(kStart));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_->get(key, Deadline::after(kStart));
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    store_->wait(keys, Deadline::after(kStart));
  }

 private:
  std::shared_ptr<horon::Store> store_;
};

class RawGloo final : public RawPeer {
 public:
  RawGloo(int rank, int size, std::shared_ptr<Store> store)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    GlooStore places(std::move(store));
    context_->connectFullMesh(places, device);
  }
  void all_reduce(float* data, uint64_t count) override {
    gloo::AllreduceOptions call(context_);
    call.setOutput(data, count);
    call.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(call);
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace
}  // namespace horon::bench

extern "C" {

HORON_API const char* horon_part_version() { return horon::kBuildId; }

HORON_API horon::bench::RawPeer* horon_raw_gloo(int rank, int size,
                                                const std::shared_ptr<horon::Store>* store) {
  return new horon::bench::RawGloo(rank, size, *store);
}

}  // extern "C"
