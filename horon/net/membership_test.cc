#include "horon/net/membership.h"

#include <gtest/gtest.h>

#include <map>

#include "horon/base/error.h"

namespace horon {
namespace {

bool all_are_own(const std::string&) { return true; }
bool none_is_own(const std::string&) { return false; }

std::string why(const std::string& json, const IsOwnAddress& is_own = all_are_own) {
  try {
    parse_tf_config(json, is_own);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

void expect_error(const std::string& json, const std::string& piece) {
  EXPECT_NE(why(json).find(piece), std::string::npos) << json << "\n  said: " << why(json);
}

TEST(TfConfigParse, NothingMeansOneLocalWorker) {
  for (const char* text : {"", "{}", R"({"cluster":{}})", R"({"rpc_layer":"grpc"})"}) {
    const TfConfig config = parse_tf_config(text, none_is_own);
    EXPECT_EQ(config.size, 1);
    EXPECT_EQ(config.rank, 0);
    EXPECT_TRUE(config.is_chief);
  }
}

TEST(TfConfigParse, WorkerZeroIsChiefOnlyWithoutAChief) {
  const std::string workers = R"("worker":["a:1","b:2"])";
  TfConfig config = parse_tf_config(
      R"({"cluster":{)" + workers + R"(},"task":{"type":"worker","index":0}})", all_are_own);
  EXPECT_TRUE(config.is_chief);
  EXPECT_EQ(config.rank, 0);
  EXPECT_EQ(config.leader, (Endpoint{"a", 1}));
  config = parse_tf_config(
      R"({"cluster":{"chief":["c:3"],)" + workers + R"(},"task":{"type":"worker","index":1}})",
      all_are_own);
  EXPECT_FALSE(config.is_chief);
  EXPECT_EQ(config.rank, 2);
  EXPECT_EQ(config.size, 3);
  EXPECT_EQ(config.leader, (Endpoint{"c", 3}));
}

TEST(TfConfigParse, ParameterServersAndTheEvaluatorAreNoRanks) {
  const std::string cluster =
      R"("cluster":{"chief":["c:1"],"worker":["a:1"],"ps":["p:1","q:1"],"evaluator":["e:1"]})";
  TfConfig config =
      parse_tf_config("{" + cluster + R"(,"task":{"type":"ps","index":1}})", all_are_own);
  EXPECT_EQ(config.rank, -1);
  EXPECT_EQ(config.size, 2);
  EXPECT_FALSE(config.is_chief);
  config =
      parse_tf_config("{" + cluster + R"(,"task":{"type":"evaluator","index":0}})", all_are_own);
  EXPECT_EQ(config.rank, -1);
  EXPECT_TRUE(config.is_chief);
  config = parse_tf_config(
      R"({"cluster":{"worker":["a:1"]},"task":{"type":"evaluator","index":3}})", none_is_own);
  EXPECT_EQ(config.index, 3);
}

TEST(TfConfigParse, EveryHazardHasItsMessage) {
  const std::string task = R"("task":{"type":"worker","index":0})";
  expect_error("worker0", "not JSON");
  expect_error("[1]", "not a JSON object");
  expect_error(R"({"cluster":{"worker":["a:1","b:1"]}})", "'task' is missing");
  expect_error(R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker"}})", "needs \"type\"");
  expect_error(R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":"0"}})",
               "not an integer");
  expect_error(R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":1}})", "0 to 0");
  expect_error(R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":-1}})", "index -1");
  expect_error(R"({"cluster":{"worker":["a:1"]},"task":{"type":"boss","index":0}})",
               "unknown task type 'boss'");
  expect_error(R"({"cluster":{"workers":["a:1"]},)" + task + "}", "unknown task type 'workers'");
  expect_error(R"({"cluster":{"ps":["a:1"]},)" + task + "}", "has no worker");
  expect_error(R"({"cluster":{"worker":["a:1","a:1"]},)" + task + "}", "two tasks");
  expect_error(R"({"cluster":{"worker":["a:1"],"ps":["a:1"]},)" + task + "}", "two tasks");
  expect_error(R"({"cluster":{"worker":["a:1"],"chief":["b:1","c:1"]},)" + task + "}",
               "at most one");
  expect_error(R"({"cluster":{"worker":["a:1"],"evaluator":["b:1","c:1"]},)" + task + "}",
               "at most one");
  expect_error(R"({"cluster":{"worker":["a"]},)" + task + "}", "not host:port");
  expect_error(R"({"cluster":{"worker":["user@a:1"]},)" + task + "}", "an invalid host name");
  expect_error(R"({"cluster":{"worker":"a:1"},)" + task + "}", "not a list");
  expect_error(R"({"cluster":{"worker":[1]},)" + task + "}", "is not a text");
  EXPECT_NE(
      why(R"({"cluster":{"worker":["a:1"]},)" + task + "}", none_is_own).find("not of this host"),
      std::string::npos);
}

MembershipSpec membership_of(const std::map<std::string, std::string>& variables) {
  return read_membership(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      all_are_own);
}

TEST(Membership, IsDetectedForEveryLauncher) {
  EXPECT_EQ(membership_of({}).by, StartedBy::kNobody);
  MembershipSpec spec = membership_of(
      {{"HORON_RANK", "1"}, {"HORON_SIZE", "3"}, {"HORON_RENDEZVOUS", "10.0.0.1:4000"}});
  EXPECT_EQ(spec.by, StartedBy::kHand);
  EXPECT_EQ(spec.rank, 1);
  EXPECT_FALSE(spec.serves || spec.one_host);
  spec = membership_of(
      {{"HORON_RANK", "0"}, {"HORON_SIZE", "3"}, {"HORON_RENDEZVOUS", "127.0.0.1:4000"}});
  EXPECT_TRUE(spec.serves && spec.one_host);
  spec = membership_of({{"HORON_RANK", "0"},
                        {"HORON_SIZE", "3"},
                        {"HORON_RENDEZVOUS", "a:1"},
                        {"HORON_AGENT_ID", "x"}});
  EXPECT_EQ(spec.by, StartedBy::kLauncher);
  EXPECT_FALSE(spec.serves);
  spec = membership_of({{"OMPI_COMM_WORLD_RANK", "2"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"HORON_RANK", "2"},
                        {"HORON_SIZE", "4"}});
  EXPECT_EQ(spec.by, StartedBy::kMpi);
  EXPECT_TRUE(spec.one_host);
  spec = membership_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_TRUE(spec.by == StartedBy::kMpi && spec.serves && !spec.one_host);
  spec = membership_of({{"SLURM_PROCID", "5"},
                        {"SLURM_NTASKS", "8"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_JOB_ID", "7"},
                        {"SLURM_NNODES", "2"},
                        {"SLURM_STEP_NODELIST", "n[03-04]"}});
  EXPECT_EQ(spec.by, StartedBy::kSlurm);
  EXPECT_EQ(spec.rendezvous.front().host, "n03");
  // A shell inside an allocation is no step.
  EXPECT_EQ(membership_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).by, StartedBy::kNobody);
}

TEST(Membership, IncompleteVariablesAreErrors) {
  EXPECT_THROW(membership_of({{"HORON_RANK", "1"}}), UsageError);
  EXPECT_THROW(membership_of({{"HORON_RANK", "0"}, {"HORON_SIZE", "2"}}), UsageError);
  EXPECT_THROW(
      membership_of({{"HORON_RANK", "2"}, {"HORON_SIZE", "2"}, {"HORON_RENDEZVOUS", "a:1"}}),
      UsageError);
  EXPECT_THROW(
      membership_of({{"HORON_RANK", "x"}, {"HORON_SIZE", "2"}, {"HORON_RENDEZVOUS", "a:1"}}),
      UsageError);
  EXPECT_THROW(membership_of({{"HORON_RANK", "0"}, {"HORON_SIZE", "2"}, {"HORON_RENDEZVOUS", "a"}}),
               UsageError);
}

TEST(Membership, FirstNameOfASlurmNodeListIsFound) {
  EXPECT_EQ(first_of_nodelist("node7"), "node7");
  EXPECT_EQ(first_of_nodelist("a,b"), "a");
  EXPECT_EQ(first_of_nodelist("node[07-09,12],other"), "node07");
  EXPECT_EQ(first_of_nodelist("x[3]"), "x3");
  EXPECT_EQ(first_of_nodelist("a,x[3]"), "a");
  EXPECT_THROW(first_of_nodelist("x[3"), UsageError);
}

TEST(Membership, ASecretIsDemandedBeyondLoopback) {
  MembershipSpec spec;
  spec.rendezvous = {{"10.0.0.1", 4000}};
  spec.meeting = "test";
  try {
    find_secret(spec, "", false);
    FAIL() << "took no secret for a secret";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kAuth);
    EXPECT_NE(std::string(error.what()).find("horon secret"), std::string::npos);
  }
  EXPECT_EQ(find_secret(spec, "", true).reveal_hex(), find_secret(spec, "", true).reveal_hex());
}

}  // namespace
}  // namespace horon
