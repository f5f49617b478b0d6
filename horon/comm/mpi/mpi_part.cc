#include "horon/comm/mpi/mpi_part.h"

#include <fmt/format.h>

#include "horon/base/error.h"
#include "horon/base/job_settings.h"
#include "horon/base/part.h"

namespace horon {
namespace {

std::shared_ptr<Part> open_mpi_part(const MpiOptions& options) {
  const std::string flavour =
      options.flavour.empty() ? mpi_flavour_of_environment() : options.flavour;
  if (flavour.empty()) {
    throw UsageError(
        "mpi: this process was not started by mpirun; start it with `horon run --mpi` or mpirun");
  }
  return Part::open("mpi_" + flavour, options.part_folders);
}

// Calls a factory of the part; its errors come back as text, because exceptions must not cross a
// boundary that another compiler may have built.
template <typename T, typename... Args>
T* call(const Part& part, const char* symbol, Args... args) {
  using Factory = T*(Args..., std::string*);
  std::string why;
  T* made = part.function<Factory>(symbol)(args..., &why);
  if (made == nullptr) throw UsageError("mpi: " + why);
  return made;
}

}  // namespace

std::string mpi_flavour_of_environment() {
  if (process_env("OMPI_COMM_WORLD_SIZE")) return "openmpi";
  if (process_env("PMI_SIZE")) return "mpich";
  return "";
}

std::shared_ptr<Transport> make_mpi_transport(const MpiOptions& options,
                                              std::shared_ptr<Store> store) {
  const auto part = open_mpi_part(options);
  auto* transport = call<Transport, const MpiOptions*, std::shared_ptr<Store>*>(
      *part, "horon_mpi_transport", &options, &store);
  return {transport, [part](Transport* made) { delete made; }};
}

MpiIdentity mpi_identity(const MpiOptions& options) {
  const auto part = open_mpi_part(options);
  const std::unique_ptr<MpiIdentity> world(call<MpiIdentity>(*part, "horon_mpi_world"));
  return *world;
}

std::vector<std::string> mpi_exchange(const MpiOptions& options, const std::string& mine) {
  const auto part = open_mpi_part(options);
  const std::unique_ptr<std::vector<std::string>> all(
      call<std::vector<std::string>, const std::string*>(*part, "horon_mpi_exchange", &mine));
  return *all;
}

void abandon_mpi(const MpiOptions& options) {
  try {
    open_mpi_part(options)->function<void()>("horon_mpi_abandon")();
  } catch (const UsageError&) {  // without the part there is no MPI to be left
  }
}

}  // namespace horon
