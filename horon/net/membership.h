#pragma once

#include <string>
#include <vector>

#include "horon/base/job_settings.h"
#include "horon/net/secret.h"
#include "horon/net/socket.h"
#include "horon/net/tf_config.h"

// Detects which rank this process is and where the others are, whatever started it.
namespace horon {

// What started this process.
enum class StartedBy { kNobody, kLauncher, kHand, kTfConfig, kMpi, kSlurm };

// This process in its job, as far as the environment says.
struct MembershipSpec {
  StartedBy by = StartedBy::kNobody;
  int rank = 0;
  int size = 1;
  std::string role = "worker";       // in TF_CONFIG; ranks are chief or worker
  std::vector<Endpoint> rendezvous;  // the store's server; empty: provided by `by`
  bool serves = false;               // this rank serves the store
  bool one_host = false;             // known without communication
  std::string meeting;               // a name unique among the running jobs of this host
  std::string describe() const;      // "rank 3 of 8, started by mpirun"
};

// Pure. Uses the first of: HORON_RANK with HORON_SIZE (by `horon run` or by hand), TF_CONFIG,
// mpirun, srun; else a job of one rank. UsageError for incomplete or contradicting variables.
MembershipSpec read_membership(const EnvLookup& env, const IsOwnAddress& is_own);

// The first name of a Slurm node list: node07 for "node[07-09,12],other".
std::string first_of_nodelist(const std::string& list);

// True if `host` resolves to an address of this host.
bool is_own_address(const std::string& host);

// The secret of a job that was started without our launcher on several hosts: read from the file.
// Without a file: Error (exit code 16) that says how to create one, unless `insecure`. (On one host
// rank 0 creates a secret for each job.)
Secret find_secret(const MembershipSpec& spec, const std::string& secret_file, bool insecure);

// A folder that only this user can access, in XDG_RUNTIME_DIR or TMPDIR.
std::string private_folder();

}  // namespace horon
