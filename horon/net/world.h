#pragma once

#include <string>
#include <vector>

#include "horon/base/knob.h"
#include "horon/net/secret.h"
#include "horon/net/socket.h"
#include "horon/net/tf_config.h"

// How a process learns which rank it is and where the others are, whoever started it.
namespace horon {

enum class StartedBy { kNobody, kLauncher, kHand, kTfConfig, kMpi, kSlurm };

struct WorldSpec {
  StartedBy by = StartedBy::kNobody;
  int rank = 0;
  int size = 1;
  std::string role = "worker";       // of TF_CONFIG; ranks are chief or worker
  std::vector<Endpoint> rendezvous;  // of the store's server; empty: told through `by`
  bool serves = false;               // this rank is the one that serves the store
  bool one_host = false;             // known before anybody was asked
  std::string meeting;               // a name that no other running job has on this host
  std::string describe() const;      // "rank 3 of 8, started by mpirun"
};

// Pure. The first that speaks: HORON_RANK with HORON_SIZE (by `horon run` or by hand), TF_CONFIG,
// mpirun, srun; else a world of one. UsageError for a half or contradicting set of variables.
WorldSpec read_world(const EnvLookup& env, const IsOwnAddress& is_own);

// The first name of a list as Slurm writes it: "node[07-09,12],other" is node07.
std::string first_of_nodelist(const std::string& list);

// True if `host` resolves to an address of this host.
bool is_own_address(const std::string& host);

// The secret of a job without our launcher on several hosts: that of the file; without one an Error
// (exit code 16) that says how to make one, unless `insecure`. (On one host rank 0 makes a new one
// for each job.)
Secret find_secret(const WorldSpec& world, const std::string& secret_file, bool insecure);

// A folder that only this user can enter: in XDG_RUNTIME_DIR or TMPDIR.
std::string private_folder();

}  // namespace horon
