#include "horon/comm/gloo/gloo_part.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "horon/base/error.h"
#include "horon/base/part.h"

namespace horon {
namespace {

// The file whose Gloo our part would be bound to; empty if there is none: libraries that the
// program links or has opened for all count, those that a part has for itself (the trainer's
// LibTorch) do not. The name is that of gloo::Context::nextSlot(int), which old and new ones have.
std::string other_gloo() {
  Dl_info found{};
  void* program = dlopen(nullptr, RTLD_LAZY);
  void* symbol = dlsym(program, "_ZN4gloo7Context8nextSlotEi");
  const bool is_there = symbol != nullptr && dladdr(symbol, &found) != 0;
  if (program != nullptr) dlclose(program);
  return is_there ? found.dli_fname : "";
}

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                               const std::shared_ptr<Store>& store) {
  const std::string other = other_gloo();
  require(other.empty(),
          fmt::format("gloo: this process has another Gloo already, in {}; use tcp", other));
  const auto part = Part::open("gloo", options.part_folders);
  using Make = Transport*(const GlooOptions*, const std::shared_ptr<Store>*);
  Transport* transport = part->function<Make>("horon_gloo_transport")(&options, &store);
  return {transport, [part](Transport* made) { delete made; }};
}

}  // namespace horon
