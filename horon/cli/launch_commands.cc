#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/cli/commands.h"
#include "horon/launch/agent.h"
#include "horon/launch/mpi_run.h"
#include "horon/net/secret.h"

namespace horon::cli {
namespace {

void add_agent(CLI::App& app, Globals& globals) {
  auto* agent = app.add_subcommand("agent", "Starts a host's ranks for `horon run`; internal");
  agent->group("");
  agent->callback([&globals] {
    require(isatty(STDIN_FILENO) == 0, "`horon agent` is started by `horon run`, not by hand");
    globals.exit_code = launch::run_guarded_agent();
  });
}

void add_mpi_rank(CLI::App& app, Globals& globals) {
  auto* rank =
      app.add_subcommand("mpi-rank", "Sets the environment of a rank started by mpirun; internal");
  rank->group("");
  auto hosts = std::make_shared<std::vector<int>>();
  rank->add_option("--hosts", *hosts, "number of ranks requested per host")->delimiter(',');
  rank->callback(
      [hosts, &globals] { globals.exit_code = launch::become_mpi_rank(globals.command, *hosts); });
}

void add_secret(CLI::App& app) {
  auto* secret =
      app.add_subcommand("secret",
                         "Creates a secret for a job that `horon run` does not start: copy the "
                         "file to every host (mode 0600) and set HORON_SECRET_FILE");
  auto path = std::make_shared<std::string>();
  secret->add_option("file", *path, "file to create; an existing file is an error")->required();
  secret->callback([path] {
    write_private_file(*path, Secret::random().reveal_hex() + "\n");
    std::cout << fmt::format("made {} (mode 0600); on every host: export HORON_SECRET_FILE={}\n",
                             *path, *path);
  });
}

}  // namespace

void add_launch_commands(CLI::App& app, Globals& globals) {
  add_agent(app, globals);
  add_mpi_rank(app, globals);
  add_secret(app);
}

}  // namespace horon::cli
