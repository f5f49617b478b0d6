#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/launch/agent_message.h"
#include "horon/launch/environment.h"
#include "horon/launch/host_list.h"
#include "horon/launch/mpi_run.h"
#include "horon/launch/output.h"
#include "horon/launch/ssh.h"
#include "horon/launch/verdict.h"

namespace horon::launch {
namespace {

TEST(Hosts, HostListsAreParsed) {
  EXPECT_EQ(parse_hosts("a:2,b:4"), (std::vector<Host>{{"a", 2}, {"b", 4}}));
  EXPECT_EQ(parse_hosts(" a , b.lan:3 "), (std::vector<Host>{{"a", 1}, {"b.lan", 3}}));
  EXPECT_EQ(parse_hosts("[::1]:2,10.0.0.1"), (std::vector<Host>{{"::1", 2}, {"10.0.0.1", 1}}));
  EXPECT_EQ(parse_hosts("me@node_1:1"), (std::vector<Host>{{"me@node_1", 1}}));
  EXPECT_EQ(parse_hostfile("# all\na slots=2\n\nb\nc slots=3 # last\n", "f"),
            (std::vector<Host>{{"a", 2}, {"b", 1}, {"c", 3}}));
}

std::string complaint(const std::string& hosts) {
  try {
    parse_hosts(hosts);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Hosts, MistakesAreNamedWithTheirColumn) {
  EXPECT_NE(complaint("a:2,,b:2").find("column 5"), std::string::npos) << complaint("a:2,,b:2");
  EXPECT_NE(complaint("a:2, b:x").find("column 6"), std::string::npos) << complaint("a:2, b:x");
  EXPECT_NE(complaint("10.0.0.1:22222").find("not host:port"), std::string::npos);
  EXPECT_NE(complaint("::1:2").find("brackets"), std::string::npos);
  EXPECT_NE(complaint("a:1,a:2").find("twice"), std::string::npos);
  for (const char* bad : {"",       ",",     "a:",   "a:0",   "a:-1",   "a:1:2", "[::1",
                          "[::1]2", "a b:1", "-a:1", "a;b:1", "$(x):1", "`x`:1", "a|b",
                          "a&b",    "a>b",   "a'b",  "a\"b",  "a\\b",   "a/b",   "-oProxyCommand=x",
                          "a\nb",   "@a",    "-u@a", "a@-b",  "a@@b",   "a%b",   "ä:1"})
    EXPECT_NE(complaint(bad), "") << bad;
  EXPECT_EQ(parse_hostfile("a:2\n[fe80::1]:3\nfe80::2 slots=4\nfe80::3\n[fe80::4] slots=5\n", "f"),
            (std::vector<Host>{
                {"a", 2}, {"fe80::1", 3}, {"fe80::2", 4}, {"fe80::3", 1}, {"fe80::4", 5}}));
  EXPECT_THROW(parse_hostfile("a:2 slots=2", "f"), UsageError);
  EXPECT_THROW(parse_hostfile("[fe80::1]:2 slots=2", "f"), UsageError);
  EXPECT_THROW(parse_hostfile("a:two", "f"), UsageError);
  EXPECT_THROW(parse_hostfile("a slots=x", "f"), UsageError);
  EXPECT_THROW(parse_hostfile("a 2", "f"), UsageError);
  EXPECT_THROW(parse_hostfile("# none\n", "f"), UsageError);
}

TEST(Placements, RanksAreConsecutiveInTheOrderOfHosts) {
  std::vector<Host> hosts = {{"a", 2}, {"b", 3}, {"c", 2}};
  const auto placements = assign_ranks(hosts, 4);
  ASSERT_EQ(placements.size(), 4U);
  EXPECT_EQ(hosts.size(), 2U);
  EXPECT_EQ(placements[3].rank, 3);
  EXPECT_EQ(placements[3].local_rank, 1);
  EXPECT_EQ(placements[3].local_size, 2);
  EXPECT_EQ(placements[3].cross_rank, 1);
  EXPECT_EQ(placements[0].cross_size, 2);
  hosts = {{"a", 2}};
  EXPECT_THROW(assign_ranks(hosts, 3), UsageError);
  EXPECT_THROW(assign_ranks(hosts, 0), UsageError);
}

TEST(Cores, AreSharedEvenlyOrNotAtAll) {
  const std::vector<int> cores = {0, 1, 2, 3, 6};
  EXPECT_EQ(cores_of_rank(cores, 0, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(cores_of_rank(cores, 1, 2), (std::vector<int>{2, 3, 6}));
  EXPECT_EQ(cores_of_rank(cores, 4, 5), (std::vector<int>{6}));
  EXPECT_TRUE(cores_of_rank(cores, 0, 6).empty());
}

TEST(Variables, RankVariablesHaveHoronAndHorovodNames) {
  const auto variables = rank_environment({5, 8, 1, 4, 1, 2}, "node7", 16);
  EXPECT_EQ(variables.at("HORON_RANK"), "5");
  EXPECT_EQ(variables.at("HOROVOD_RANK"), "5");
  EXPECT_EQ(variables.at("HOROVOD_LOCAL_SIZE"), "4");
  EXPECT_EQ(variables.at("HORON_CROSS_RANK"), "1");
  EXPECT_EQ(variables.at("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(rank_environment({0, 8, 0, 8, 0, 1}, "", 2).at("OMP_NUM_THREADS"), "1");
}

TEST(Variables, OnlyDocumentedVariablesArePassedOn) {
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS",
                           "HORON_TIMEOUT", "HOROVOD_FUSION_THRESHOLD", "MINE"})
    EXPECT_TRUE(travels(name, {"MINE"})) << name;
  for (const char* name : {"AWS_SECRET_ACCESS_KEY", "HOME", "LD_PRELOAD", "HORON_RANK",
                           "HOROVOD_SIZE", "HORON_SECRET_FILE", "PATHS"})
    EXPECT_FALSE(travels(name, {"MINE"})) << name;
  EXPECT_THROW(check_variable_name("A B"), UsageError);
  EXPECT_THROW(check_variable_name("1A"), UsageError);
  EXPECT_THROW(check_variable_name(""), UsageError);
}

TEST(Ssh, TheCommandAllowsNoPromptsAndNoShellCharacters) {
  SshOptions options;
  options.remote_program = "/opt/horon/bin/horon";
  options.port = 2222;
  const auto command = ssh_command(options, "b");
  ASSERT_GE(command.size(), 3U);
  EXPECT_EQ(command[command.size() - 3], "--");
  EXPECT_EQ(command[command.size() - 2], "b");
  EXPECT_EQ(command.back(), "exec /opt/horon/bin/horon agent");
  const auto has = [&](const std::string& word) {
    return std::find(command.begin(), command.end(), word) != command.end();
  };
  EXPECT_TRUE(has("BatchMode=yes") && has("StrictHostKeyChecking=yes") && has("2222"));
  for (const char* bad : {"/a b/horon", "/a;b", "$(x)", "", "-x", "/a'b"}) {
    options.remote_program = bad;
    EXPECT_THROW(ssh_command(options, "b"), UsageError) << bad;
  }
}

TEST(Ssh, FailuresAreExplained) {
  SshOptions options;
  options.remote_program = "/x/horon";
  const auto says = [&](int status, const char* words, const char* piece) {
    const std::string text = explain_ssh_failure(options, status, words);
    EXPECT_NE(text.find(piece), std::string::npos) << text;
  };
  says(255,
       "No ED25519 host key is known for b and you have requested strict checking.\nHost key "
       "verification failed.",
       "not known");
  says(255, "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
       "has changed");
  says(255, "ssh: connect to host b port 22: Connection refused", "refused");
  says(255, "ssh: connect to host b port 22: Connection timed out", "timed out");
  says(255, "Could not resolve hostname b: Name or service not known", "no host of that name");
  says(255, "me@b: Permission denied (publickey).", "denied");
  says(127, "bash: line 1: /x/horon: No such file or directory", "no horon there");
  says(1, "something else", "something else");
}

TEST(AgentMessages, UnpackReturnsWhatWasPackedAndRefusesOtherBytes) {
  StartRanks start;
  start.secret = "s";
  start.command = {"a", "b\n'\"$(x)"};
  start.environment = {"A=1"};
  start.placements = {{1, 4, 1, 2, 0, 2}};
  const auto read = std::get<StartRanks>(unpack_to_agent(pack(ToAgent(start))));
  EXPECT_EQ(read.command, start.command);
  EXPECT_EQ(read.placements.front().size, 4);
  const auto ended =
      std::get<RankEnded>(unpack_from_agent(pack(FromAgent(RankEnded{3, 9, "why"}))));
  EXPECT_EQ(ended.rank, 3);
  EXPECT_EQ(ended.status, 9);
  const std::string good = pack(ToAgent(start));
  for (size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_THROW(unpack_to_agent(good.substr(0, cut)), Error);
  EXPECT_THROW(unpack_to_agent("\x7f"), Error);
  EXPECT_THROW(unpack_from_agent(good + "x"), Error);
}

constexpr int status_of(int code) { return code << 8; }
constexpr int kPeerLost = status_of(10);

int blamed(const std::vector<RankFailure>& failures) { return choose_culprit(failures).rank; }

TEST(Verdict, BlamesTheOneThatFailedByItself) {
  EXPECT_EQ(blamed({{0, "a", status_of(1), "", {}}, {1, "b", status_of(2), "", {}}}), 0);
  EXPECT_EQ(blamed({{0, "a", kPeerLost, "", {}}, {1, "b", SIGKILL, "", {}}}), 1);
  EXPECT_EQ(blamed({{0, "a", kPeerLost, "", {}}, {1, "b", 0, "cannot run", {}}}), 1);
  // However late, also after it was told to stop.
  EXPECT_EQ(blamed({{0, "a", kPeerLost, "", {}}, {1, "b", status_of(1), "", {SIGTERM}}}), 1);
  EXPECT_EQ(blamed({{0, "a", kPeerLost, "", {}}, {1, "b", SIGSEGV, "", {SIGTERM, SIGKILL}}}), 1);
  // A SIGKILL that was not ours.
  EXPECT_EQ(blamed({{0, "a", kPeerLost, "", {}}, {1, "b", SIGKILL, "", {SIGTERM}}}), 1);
}

TEST(Verdict, RanksThatEndAsRequestedAreNotBlamed) {
  for (const int status : {SIGTERM, SIGKILL, status_of(128 + SIGTERM), status_of(75)}) {
    const RankFailure told{1, "b", status, "", {SIGTERM, SIGKILL}};
    EXPECT_EQ(blamed({told, {0, "a", status_of(1), "", {SIGTERM}}}), 0) << status;
    EXPECT_EQ(blamed({told, {2, "a", kPeerLost, "", {SIGTERM}}}), 2) << status;
    EXPECT_EQ(blamed({told}), 1) << status;
    const RankFailure untold{1, "b", status, "", {}};
    EXPECT_EQ(blamed({{0, "a", kPeerLost, "", {}}, untold}), 1) << status;
  }
}

TEST(Verdict, AnInterruptionIsNobodysFailure) {
  const std::vector<int> sent = {SIGINT};
  EXPECT_TRUE(is_interruption({}));
  EXPECT_TRUE(is_interruption({{0, "a", SIGINT, "", sent},
                               {1, "a", status_of(75), "", sent},
                               {2, "a", status_of(130), "", sent},
                               {3, "a", kPeerLost, "", sent}}));
  EXPECT_FALSE(is_interruption({{0, "a", SIGINT, "", sent}, {1, "a", status_of(1), "", sent}}));
  EXPECT_FALSE(is_interruption({{0, "a", SIGTERM, "", sent}}));
  EXPECT_FALSE(is_interruption({{0, "a", kPeerLost, "", {}}}));
  EXPECT_FALSE(is_interruption({{0, "a", SIGKILL, "", {SIGINT, SIGKILL}}}));
}

TEST(Verdict, NamesTheSignalAndWhetherHoronSentIt) {
  EXPECT_EQ(describe_failure({1, "b", SIGKILL, "", {}}),
            "rank 1 on b was killed by signal 9 (Killed); was the host out of memory?");
  EXPECT_EQ(describe_failure({1, "b", SIGKILL, "", {SIGINT, SIGKILL}}),
            "rank 1 on b was killed by signal 9 (Killed), sent by horon run");
  EXPECT_EQ(describe_failure({1, "b", status_of(3), "", {SIGTERM}}),
            "rank 1 on b ended with status 3");
}

TEST(Lines, AreNeverTorn) {
  LineCutter cutter;
  const auto now = Clock::now();
  EXPECT_TRUE(cutter.feed("half", now).empty());
  EXPECT_EQ(cutter.feed(" line\nnext\r\nlast", now),
            (std::vector<std::string>{"half line", "next"}));
  EXPECT_EQ(cutter.rest(), "last");
  EXPECT_EQ(cutter.rest(), std::nullopt);
  EXPECT_TRUE(cutter.feed("10%\r20%\r30%", now).empty());  // shown once a second
  EXPECT_EQ(cutter.feed("\r40%\r50%", now + std::chrono::seconds(2)),
            (std::vector<std::string>{"40%"}));
  EXPECT_EQ(cutter.feed("\ndone\n", now), (std::vector<std::string>{"50%", "done"}));
  EXPECT_EQ(cutter.feed("half an end\r", now), std::vector<std::string>{});
  EXPECT_EQ(cutter.feed("\nnext", now), std::vector<std::string>{"half an end"});
  for (int i = 0; i < 96; ++i) EXPECT_TRUE(cutter.feed(std::string(32U << 10, 'x'), now).empty());
  EXPECT_EQ(cutter.held(), 4U + (3U << 20));
  EXPECT_EQ(cutter.feed("\n", now), std::vector<std::string>{"next" + std::string(3U << 20, 'x')});
  EXPECT_EQ(cutter.held(), 0U);
}

TEST(Lines, ProgressBarsAreKeptApartFromLinesOnATerminal) {
  using Some = std::vector<std::string>;
  LineCutter cutter(true);
  const auto now = Clock::now();
  EXPECT_EQ(cutter.feed("first\nhalf", now), Some{"first"});
  EXPECT_EQ(cutter.bar(), std::nullopt);
  EXPECT_EQ(cutter.feed(" line\r", now), Some{});  // perhaps of a line's end
  EXPECT_EQ(cutter.bar(), std::nullopt);
  EXPECT_EQ(cutter.feed("\n\r10%", now + std::chrono::seconds(2)), Some{"half line"});
  EXPECT_EQ(cutter.bar(), "10%");
  EXPECT_EQ(cutter.feed("\r20%\r30%", now + std::chrono::seconds(4)), Some{});
  EXPECT_EQ(cutter.bar(), "30%");
  EXPECT_EQ(cutter.feed("\r", now), Some{});
  EXPECT_EQ(cutter.bar(), "30%");
  EXPECT_EQ(cutter.feed("    \rdone\nnext", now), Some{"done"});
  EXPECT_EQ(cutter.bar(), std::nullopt);
  EXPECT_EQ(cutter.rest(), "next");
  EXPECT_EQ(cutter.feed("\r90%", now), Some{});
  EXPECT_EQ(cutter.rest(), "90%");
  EXPECT_EQ(cutter.held(), 0U);
  EXPECT_EQ(cutter.rest(), std::nullopt);
  EXPECT_EQ(cutter.feed("\r", now), Some{});
  EXPECT_EQ(cutter.bar(), "");
}

TEST(Mpi, HostsAreCountedNotSlots) {
  const auto placement = [](int rank, int local_rank, int local_size) {
    return RankPlacement{rank, 4, local_rank, local_size, -1, -1};
  };
  RankPlacement last = placement(3, 0, 1);
  ASSERT_TRUE(find_host(last, {3, 1}));
  EXPECT_EQ(last.cross_rank, 1);
  EXPECT_EQ(last.cross_size, 2);
  RankPlacement first = placement(2, 2, 3);
  ASSERT_TRUE(find_host(first, {3, 1}));
  EXPECT_EQ(first.cross_rank, 0);
  // Laid out otherwise than asked for: better nothing than something wrong.
  for (RankPlacement other : {placement(1, 0, 1), placement(3, 2, 3), placement(4, 0, 1)})
    EXPECT_FALSE(find_host(other, {3, 1})) << other.rank;
}

JobPlan two_hosts() {
  JobPlan plan;
  plan.hosts = {{"localhost", 3}, {"192.0.2.7", 1}};
  plan.placements = assign_ranks(plan.hosts, 4);
  plan.command = {"./program"};
  plan.ssh.port = 2222;
  plan.ssh.identity_file = "/my/key";
  plan.ssh.accept_new_keys = true;
  return plan;
}

TEST(Mpi, MpirunsSshGetsOurOptions) {
  JobPlan plan = two_hosts();
  const std::string words = "-o StrictHostKeyChecking=accept-new -p 2222 -i /my/key";
  const auto command = mpirun_command(plan, {"/bin/horon", {}, true}, MpiKind::kOpenMpi);
  const auto at = std::find(command.begin(), command.end(), "plm_rsh_args");
  ASSERT_NE(at, command.end());
  EXPECT_EQ(*(at + 1), words);
  EXPECT_EQ(mpirun_environment(plan, MpiKind::kMpich).at("HYDRA_LAUNCHER_EXTRA_ARGS"), words);
  plan.ssh.identity_file = "/my own/key";
  EXPECT_THROW(mpirun_command(plan, {}, MpiKind::kOpenMpi), UsageError);
  EXPECT_THROW(mpirun_environment(plan, MpiKind::kMpich), UsageError);
}

TEST(Mpi, TaggedLinesFindTheirRank) {
  const auto show = [](const std::string& line, MpiKind kind) {
    std::string text;
    for (const TaggedPiece& piece : parse_tagged_line(line, kind))
      text += std::to_string(piece.rank) + (piece.is_error ? "!" : ":") + piece.text + "|";
    return text;
  };
  EXPECT_EQ(show("[1,3]<stderr>:oh no", MpiKind::kOpenMpi), "3!oh no|");
  EXPECT_EQ(show("[1,3]<stdout>:", MpiKind::kOpenMpi), "3:|");
  EXPECT_EQ(show("[2] [x] y", MpiKind::kMpich), "2:[x] y|");
  EXPECT_EQ(show("mpirun noticed", MpiKind::kOpenMpi), "");
  EXPECT_EQ(show("", MpiKind::kMpich), "");
  // A line that came in parts, with another rank's in between.
  EXPECT_EQ(
      show("[1,3]<stdout>:a[0] [[1,3]<stdout>:b[1,12]<stderr>:c[1,3]<stdout>:", MpiKind::kOpenMpi),
      "3:a[0] [|3:b|12!c|3:|");
}

}  // namespace
}  // namespace horon::launch
