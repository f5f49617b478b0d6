#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/net/secret.h"
#include "horon/net/socket.h"
#include "horon/net/store_message.h"
#include "horon/net/store_server.h"
#include "horon/net/store_table.h"
#include "horon/net/tls.h"
#include "horon/net/wire.h"

namespace horon {
namespace {

// Carries bytes between the two until nothing moves; what each got wrong comes back as exit codes.
struct Meeting {
  TlsSession client;
  TlsSession server;
  std::string from_client;  // all of it, for replays
  Meeting(const Secret& a, const Secret& b)
      : client(TlsSide::kClient, a), server(TlsSide::kServer, b) {}
  void carry() {
    for (int turn = 0; turn < 10; ++turn) {
      const std::string up = client.take_output();
      from_client += up;
      if (!up.empty()) server.feed(up);
      const std::string down = server.take_output();
      if (!down.empty()) client.feed(down);
      if (up.empty() && down.empty()) return;
    }
  }
};

TEST(Tls, OpensBetweenMembersAndCarriesBytes) {
  const Secret secret = Secret::random();
  Meeting meeting(secret, secret);
  meeting.carry();
  ASSERT_TRUE(meeting.client.is_open() && meeting.server.is_open());
  EXPECT_LE(meeting.from_client.size(), TlsSession::kMaxUnproven);
  const std::string big(100'000, 'x');
  meeting.client.write(big);
  meeting.server.feed(meeting.client.take_output());
  EXPECT_EQ(meeting.server.read(), big);
  meeting.server.write("back");
  const std::string wire = meeting.server.take_output();
  EXPECT_EQ(wire.find("back"), std::string::npos);
  meeting.client.feed(wire);
  EXPECT_EQ(meeting.client.read(), "back");
}

TEST(Tls, RefusesAnotherSecret) {
  Meeting meeting(Secret::random(), Secret::random());
  try {
    meeting.carry();
    FAIL() << "two jobs shook hands";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kAuth);
  }
  EXPECT_FALSE(meeting.server.is_open() || meeting.server.is_half_open());
  EXPECT_FALSE(meeting.client.is_open());
}

TEST(Tls, AReplayedHandshakeDoesNotOpen) {
  const Secret secret = Secret::random();
  Meeting meeting(secret, secret);
  meeting.carry();
  TlsSession again(TlsSide::kServer, secret);
  EXPECT_THROW(again.feed(meeting.from_client), Error);
  EXPECT_FALSE(again.is_open());
}

TEST(Tls, RefusesGarbageAndTooMuchOfIt) {
  const Secret secret = Secret::random();
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(600, '\0'), std::string(2000, '\x16')}) {
    TlsSession server(TlsSide::kServer, secret);
    EXPECT_THROW(server.feed(bytes), Error) << bytes.substr(0, 10);
    EXPECT_FALSE(server.is_open());
  }
}

TEST(Tls, EveryFlippedBitOfTheHelloIsRefused) {
  const Secret secret = Secret::random();
  TlsSession client(TlsSide::kClient, secret);
  const std::string hello = client.take_output();
  for (size_t bit = 40; bit < hello.size() * 8; bit += 3) {  // the record header is not signed
    std::string bad = hello;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    TlsSession server(TlsSide::kServer, secret);
    try {
      server.feed(bad);
    } catch (const Error&) {  // refused at once: good
    }
    EXPECT_FALSE(server.is_half_open()) << "bit " << bit;
  }
}

TEST(Secrets, AreReadFromPrivateFilesOnly) {
  const TempFolder folder;
  const std::string path = folder.path() + "/secret";
  const Secret secret = Secret::random();
  write_private_file(path, secret.reveal_hex() + "\n");
  EXPECT_EQ(Secret::from_file(path).reveal_hex(), secret.reveal_hex());
  EXPECT_THROW(write_private_file(path, "again"), IoError);
  chmod(path.c_str(), 0640);
  try {
    Secret::from_file(path);
    FAIL() << "took a secret that others can read";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kAuth);
    EXPECT_EQ(std::string(error.what()).find(secret.reveal_hex()), std::string::npos);
  }
  EXPECT_THROW(Secret::from_file(folder.path() + "/none"), UsageError);
  EXPECT_THROW(Secret::from_hex("abc"), UsageError);
  EXPECT_THROW(Secret::from_hex(std::string(64, 'g')), UsageError);
  EXPECT_NE(Secret::random().public_id(), secret.public_id());
}

TEST(Wire, ReadsBackWhatWasWritten) {
  const std::string bytes =
      Packer().u8(7).u32(1U << 31).u64(~0ULL).text("a\0b").texts({"", "x"}).take();
  Unpacker from(bytes);
  EXPECT_EQ(from.u8(), 7);
  EXPECT_EQ(from.u32(), 1U << 31);
  EXPECT_EQ(from.u64(), ~0ULL);
  EXPECT_EQ(from.text(), "a");
  EXPECT_EQ(from.texts(), (std::vector<std::string>{"", "x"}));
  from.end();
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    Unpacker part(std::string_view(bytes).substr(0, cut));
    EXPECT_THROW(
        {
          part.u8();
          part.u32();
          part.u64();
          part.text();
          part.texts();
        },
        Error);
  }
}

TEST(Wire, FramesAreCutAndBounded) {
  FrameReader reader(16);
  const std::string stream = make_frame("one") + make_frame("") + make_frame("three");
  for (const char byte : stream) reader.feed({&byte, 1});
  EXPECT_EQ(reader.next(), "one");
  EXPECT_EQ(reader.next(), "");
  EXPECT_EQ(reader.next(), "three");
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_THROW(reader.feed(make_frame(std::string(17, 'x'))), Error);
  FrameReader second(16);
  EXPECT_THROW(second.feed(std::string("\xff\xff\xff\xff", 4)), Error);
}

TEST(Wire, HugeCountsAllocateNothing) {
  const std::string bytes = Packer().u32(0xffffffff).take();
  EXPECT_THROW(Unpacker(bytes).texts(), Error);
  EXPECT_THROW(Unpacker(bytes).text(), Error);
}

TEST(StoreMessages, UnpackReturnsWhatWasPackedAndRefusesOtherBytes) {
  const StoreRequest request{StoreOp::kAdd, 5, {"key"}, "", -3};
  const StoreRequest read = unpack_request(pack(request));
  EXPECT_EQ(read.amount, -3);
  EXPECT_EQ(read.keys, request.keys);
  EXPECT_THROW(unpack_request(pack(StoreRequest{StoreOp::kSet, 0, {}, "", 0})), Error);
  EXPECT_THROW(unpack_request(pack(StoreRequest{StoreOp::kSet, 0, {"a", "b"}, "", 0})), Error);
  EXPECT_THROW(unpack_request(pack(request) + "x"), Error);
  EXPECT_THROW(unpack_request(std::string("\x09")), Error);
  EXPECT_THROW(unpack_reply(std::string("\x09")), Error);
  StoreTable table;
  std::string missing;
  EXPECT_EQ(table.answer({StoreOp::kSet, 0, {"bad key"}, "", 0}, missing)->status,
            StoreStatus::kUsage);
}

// What a guest says to a server, before it leaves; returns when the server has let it go.
void visit(EventLoop& loop, const StoreServer& server, const std::string& words) {
  const Endpoint at = server.endpoints().front();
  const Fd guest = start_connect(at.host, at.port);
  ASSERT_TRUE(guest && wait_for(guest.get(), POLLOUT, Deadline::after(std::chrono::seconds(5))));
  ASSERT_EQ(send(guest.get(), words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
  shutdown(guest.get(), SHUT_WR);
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  for (bool over = false; !over && !deadline.passed();) {
    loop.run_once(Deadline::after(Milliseconds(1)));
    char piece[4096];
    over = recv(guest.get(), piece, sizeof(piece), 0) == 0;
  }
  EXPECT_FALSE(deadline.passed());
}

TEST(StoreServer, ARankThatDiesWhileEnteringIsNotLoggedAsRefused) {
  EventLoop loop;
  const Secret secret = Secret::random();
  std::vector<std::string> said;
  StoreServer server(loop, secret, {}, Log(LogLevel::kWarn, "test", [&](const std::string& line) {
                       said.push_back(line);
                     }));
  visit(loop, server, "");  // not a word
  const std::string hello = TlsSession(TlsSide::kClient, secret).take_output();
  visit(loop, server, hello);  // it knew the secret
  EXPECT_EQ(server.refused(), 0U);
  EXPECT_TRUE(said.empty());
  visit(loop, server, TlsSession(TlsSide::kClient, Secret::random()).take_output());
  visit(loop, server, hello.substr(0, 20));
  visit(loop, server, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(server.refused(), 3U);
  EXPECT_FALSE(said.empty());
}

TEST(Endpoints, AreParsedStrictly) {
  EXPECT_EQ(parse_endpoint("node-7.lan:4000"), (Endpoint{"node-7.lan", 4000}));
  EXPECT_EQ(parse_endpoint(" [::1]:2 "), (Endpoint{"::1", 2}));
  EXPECT_EQ(format_endpoints(parse_endpoints("a:1,[fe80::1]:2")), "a:1,[fe80::1]:2");
  for (const char* bad : {"", "host", "host:", "host:0", "host:65536", "host:x", ":80", "::1:80",
                          "-oProxy:80", "a b:80", "$(x):1", "[::1]", "a;b:1"})
    EXPECT_THROW(parse_endpoint(bad), UsageError) << bad;
  EXPECT_THROW(parse_endpoints(""), UsageError);
}

TEST(Sockets, APortInUseNamesItsOwner) {
  const Fd first = listen_on("127.0.0.1", 0);
  const int port = local_endpoint(first.get()).port;
  try {
    listen_on("127.0.0.1", port);
    FAIL() << "one port, two servers";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("process " + std::to_string(getpid())),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(source_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(resolve_interface("lo"), "127.0.0.1");
  EXPECT_THROW(resolve_interface("no-such-interface"), UsageError);
}

}  // namespace
}  // namespace horon
