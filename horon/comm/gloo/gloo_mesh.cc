#include "horon/comm/gloo/gloo_mesh.h"

#include <gloo/context.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <unistd.h>

namespace horon {
namespace {

namespace tcp = gloo::transport::tcp;

// A pair that gets its connection from us. Gloo's own constructor has already begun to listen, on
// loopback: that ends here, and whoever may have come in between is let go.
class LinkedPair final : public tcp::Pair {
 public:
  LinkedPair(tcp::Context* context, tcp::Device* device, int peer,
             std::chrono::milliseconds timeout, Fd link)
      : tcp::Pair(context, device, peer, timeout) {
    const std::lock_guard lock(m_);
    if (fd_ >= 0) {
      device_->unregisterDescriptor(fd_, this);
      ::close(fd_);
    }
    fd_ = link.release();
    handleConnected();
  }
};

class LinkedTransport final : public tcp::Context {
 public:
  LinkedTransport(std::shared_ptr<tcp::Device> device, int own, int count)
      : tcp::Context(std::move(device), own, count) {}
  void link(int peer, Fd connection) {
    pairs_[static_cast<size_t>(peer)] = std::make_unique<LinkedPair>(
        this, device_.get(), peer, getTimeout(), std::move(connection));
  }
};

class LinkedContext final : public gloo::Context {
 public:
  LinkedContext(int own, std::vector<Fd> links, Milliseconds timeout)
      : gloo::Context(own, static_cast<int>(links.size())) {
    setTimeout(timeout);
    tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    const auto device = std::dynamic_pointer_cast<tcp::Device>(tcp::CreateDevice(attributes));
    const auto transport = std::make_shared<LinkedTransport>(device, rank, size);
    transport->setTimeout(timeout);
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) transport->link(peer, std::move(links[static_cast<size_t>(peer)]));
    }
    device_ = device;
    transportContext_ = transport;
  }
};

}  // namespace

std::shared_ptr<gloo::Context> make_gloo_context(int rank, std::vector<Fd> links,
                                                 Milliseconds timeout) {
  return std::make_shared<LinkedContext>(rank, std::move(links), timeout);
}

}  // namespace horon
