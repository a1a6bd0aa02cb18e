// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/options.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

TEST(IoChoice, IsOneOfThreeWords) {
  EXPECT_EQ(*parse_io("auto"), host::IoChoice::kAuto);
  EXPECT_EQ(*parse_io("uring"), host::IoChoice::kUring);
  EXPECT_EQ(*parse_io("epoll"), host::IoChoice::kEpoll);
  for (const char* const text : {"", "io_uring", "Epoll", "epoll "}) {
    ASSERT_FALSE(parse_io(text)) << text;
    EXPECT_EQ(parse_io(text).error().hint, "expected auto, uring or epoll");
  }
}

TEST(ServeOptions, ThreadsAreANumberOrAuto) {
  EXPECT_EQ(*parse_threads("auto"), kThreadsAuto);
  EXPECT_EQ(*parse_threads("1"), 1U);
  EXPECT_EQ(*parse_threads("64"), 64U);
  for (const char* const text : {"", "0", "-1", "65", "2x", "many"}) {
    ASSERT_FALSE(parse_threads(text)) << text;
    EXPECT_EQ(parse_threads(text).error().hint, "expected auto or a number from 1 to 64");
  }
}

TEST(ServeOptions, ListenAddressesAreReadAndPrinted) {
  for (const char* text : {"127.0.0.1:10809", "[::1]:80", ":10809", "0.0.0.0:0", "unix:/a b"}) {
    const auto address = parse_listen(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(print_listen(*address), text);
  }
  EXPECT_EQ(print_listen(*parse_listen("localhost:80")), "127.0.0.1:80");
  EXPECT_EQ(print_listen(*parse_listen("localhost")), "127.0.0.1:10809");
  EXPECT_EQ(parse_listen("127.0.0.1")->port, kDefaultPort);
  EXPECT_EQ(parse_listen("[::1]")->port, kDefaultPort);
}

TEST(ServeOptions, AnEntranceMayNameItsProtocol) {
  for (const char* text : {"toy+127.0.0.1:1", "toy+[::1]:80", "toy+unix:/a+b", "unix:/a+b"}) {
    const auto address = parse_entrance(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(print_listen(*address), text);
  }
  EXPECT_EQ(parse_entrance("toy+unix:/a+b")->protocol, "toy");
  EXPECT_EQ(parse_entrance("unix:/a+b")->protocol, "") << "it is in the path";
  EXPECT_FALSE(parse_entrance("toy+"));
  EXPECT_FALSE(parse_entrance("+127.0.0.1:1"));
  EXPECT_FALSE(parse_listen("toy+127.0.0.1:1")) << "not where there is one protocol";
}

TEST(ServeOptions, WhatIsNoAddressIsRefused) {
  for (const char* text : {"", ":", "myhost:1", "1.2.3.4:65536", "1.2.3.4:x", "::1:80", "[::1",
                           "[1.2.3.4]:1", "unix:", "10809", "1.2.3.4:-1", "1.2.3.4:80 "}) {
    EXPECT_FALSE(parse_listen(text)) << text;
  }
  EXPECT_FALSE(parse_listen("unix:" + std::string(108, 'x')));
  EXPECT_TRUE(parse_listen("unix:" + std::string(107, 'x')));
}

TEST(ServeOptions, StoresAreRead) {
  const auto file = parse_store("file:/a/b.img,size=4GiB,direct");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->path, "/a/b.img");
  EXPECT_EQ(file->size, Bytes{std::uint64_t{4} << 30});
  EXPECT_TRUE(file->direct);
  EXPECT_FALSE(file->shape);
  EXPECT_EQ(parse_store("device:/dev/sdb")->kind, StoreOptions::Kind::kDevice);
  EXPECT_EQ(parse_store("memory:1MiB")->size, Bytes{1U << 20});

  const auto slow = parse_store("shaped:iops=2000,bps=100MB,latency=1ms:memory:1GiB");
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->kind, StoreOptions::Kind::kMemory);
  EXPECT_EQ(slow->shape, (Shape{Rate::per_second(2000), Rate::per_second(100'000'000),
                                std::chrono::milliseconds{1}}));
}

TEST(ServeOptions, WhatIsNoStoreIsRefused) {
  for (const char* text :
       {"", "file:", "disk:/a", "memory:", "memory:x", "memory:1GiB,direct", "memory:1GiB,size=1",
        "device:/dev/sdb,size=1GiB", "file:/a,size=", "file:/a,foo", "shaped:memory:1GiB",
        "shaped:iops=0:memory:1GiB", "shaped:speed=1:memory:1GiB", "shaped:iops=1",
        "shaped:iops=1:shaped:iops=2:memory:1GiB", "file:/a,readonly"}) {
    EXPECT_FALSE(parse_store(text)) << text;
  }
}

TEST(ServeOptions, ExportsAreRead) {
  const auto one = parse_export("scratch=file:/a,readonly,size=1GiB,service=s2,description=a, b=c");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->name, "scratch");
  EXPECT_TRUE(one->read_only);
  EXPECT_EQ(one->service, "s2");
  EXPECT_EQ(one->description, "a, b=c");
  EXPECT_EQ(one->store.size, Bytes{1U << 30});
  EXPECT_EQ(parse_export("=memory:1MiB")->name, "");
  EXPECT_FALSE(parse_export("memory:1MiB"));
  EXPECT_FALSE(parse_export("a=memory:1MiB,service="));
}

TEST(ServeOptions, CapacitiesAreOperationsOrBytes) {
  EXPECT_EQ(parse_capacity("auto")->kind, Capacity::Kind::kAuto);
  EXPECT_EQ(*parse_capacity("4000"), (Capacity{Capacity::Kind::kOps, Rate::per_second(4000)}));
  EXPECT_EQ(*parse_capacity("20k/s"), (Capacity{Capacity::Kind::kOps, Rate::per_second(20'000)}));
  EXPECT_EQ(*parse_capacity("100MB/s"),
            (Capacity{Capacity::Kind::kBytes, Rate::per_second(100'000'000)}));
  for (const char* text : {"", "0", "fast", "-1", "100mb/s"}) {
    EXPECT_FALSE(parse_capacity(text)) << text;
  }
}

class CheckedOptions : public testing::Test {
 protected:
  CheckedOptions() {
    options.listen.push_back(*parse_listen("127.0.0.1:1"));
    options.exports.push_back(*parse_export("a=memory:1MiB"));
  }
  ServeOptions options;
};

TEST_F(CheckedOptions, TheSimplestIsRight) { EXPECT_TRUE(check(options)); }

TEST_F(CheckedOptions, AnNfsGatewayUsesOneThread) {
  options.nfs.emplace_back();
  EXPECT_EQ(options.threads, kThreadsAuto);
  EXPECT_TRUE(check(options));
  options.threads = 1;
  EXPECT_TRUE(check(options));
  options.threads = 2;
  ASSERT_FALSE(check(options));
  EXPECT_EQ(check(options).error().what, "an NFS gateway uses one thread");
}

TEST_F(CheckedOptions, SomethingToServeAndSomewhereToListen) {
  options.listen.clear();
  EXPECT_FALSE(check(options));
  options.listen.push_back(*parse_listen("127.0.0.1:1"));
  options.exports.clear();
  EXPECT_FALSE(check(options));
}

TEST_F(CheckedOptions, NamesAreGivenOnceAndHaveNoSeparators) {
  options.exports.push_back(*parse_export("a=memory:2MiB"));
  EXPECT_FALSE(check(options));
  for (const char* name : {"a,b", "a/b", "a=b"}) {
    options.exports.back().name = name;
    EXPECT_FALSE(check(options)) << name;
  }
  options.exports.back().name = "b";
  EXPECT_TRUE(check(options));
}

TEST_F(CheckedOptions, ServicesAreThereOnceAndHaveSlots) {
  options.exports.back().service = "s2";
  EXPECT_FALSE(check(options));
  options.services.emplace_back().name = "s2";
  EXPECT_TRUE(check(options));
  options.services.back().slots = ServeBounds::kSlotsMax + 1;
  EXPECT_FALSE(check(options));
  options.services.back().slots = 1;
  options.services.emplace_back().name = "s2";
  EXPECT_FALSE(check(options));
}

TEST(Slots, AreANumberOrAuto) {
  EXPECT_EQ(*parse_slots("auto"), kSlotsAuto);
  EXPECT_EQ(*parse_slots("4096"), 4096U);
  for (const char* text : {"", "0", "4097", "-1", "x", "1.5", "Auto"}) {
    EXPECT_FALSE(parse_slots(text)) << text;
  }
}

TEST_F(CheckedOptions, NumbersAreBoundedWhereverTheyAreWritten) {
  const auto is_refused = [&](auto edit) {
    ServeOptions edited = options;
    edited.services.emplace_back();
    edit(edited);
    return !check(edited);
  };
  using Bounds = ServeBounds;
  EXPECT_FALSE(is_refused([](ServeOptions&) {}));
  EXPECT_TRUE(is_refused([](auto& it) { it.services[0].slots = Bounds::kSlotsMax + 1; }));
  EXPECT_TRUE(is_refused([](auto& it) { it.services[0].hp_slots = Bounds::kSlotsMax; }));
  EXPECT_TRUE(is_refused([](auto& it) {
    it.services[0].slots = kSlotsAuto;
    it.services[0].latency_target = Nanoseconds{1};
  }));
  EXPECT_TRUE(is_refused([](auto& it) {
    it.services[0].slots = 3;
    it.services[0].latency_target = Bounds::kLatencyTargetMax;
  }));
  EXPECT_TRUE(is_refused([](auto& it) { it.services[0].classes = Bounds::kClassesMin - 1; }));
  EXPECT_TRUE(is_refused([](auto& it) { it.services[0].classes = Bounds::kClassesMax + 1; }));
  EXPECT_TRUE(is_refused([](auto& it) { it.limits.connections = Bounds::kConnectionsMax + 1; }));
  EXPECT_TRUE(is_refused([](auto& it) { it.limits.connection_requests = 0; }));
  EXPECT_TRUE(is_refused([](auto& it) { it.limits.handshake_timeout = Nanoseconds{0}; }));
  EXPECT_TRUE(is_refused([](auto& it) { it.limits.drain_timeout = std::chrono::hours{25}; }));
  EXPECT_TRUE(is_refused(
      [](auto& it) { it.exports[0].description.assign(Bounds::kDescriptionMax + 1, 'x'); }));
}

TEST_F(CheckedOptions, ACapacityIsInTheUnitOfTheCost) {
  ServiceOptions& service = options.services.emplace_back();
  for (const char* capacity : {"auto", "4000", "10MB/s"}) {
    service.capacity = *parse_capacity(capacity);
    service.cost.reset();
    EXPECT_TRUE(check(options)) << capacity << ": the cost follows";
    service.cost = Cost::bytes();
    EXPECT_EQ(check(options).has_value(), service.capacity.kind != Capacity::Kind::kOps);
    service.cost = Cost::op();
    EXPECT_EQ(check(options).has_value(), service.capacity.kind != Capacity::Kind::kBytes);
  }
}

TEST_F(CheckedOptions, NodemapsAreNamedOnce) {
  const NodemapOptions site{"site", *NidList::parse("10.*.*.*@tcp")};
  options.nodemaps = {site};
  EXPECT_TRUE(check(options));
  options.nodemaps.push_back(site);
  EXPECT_FALSE(check(options));
  options.nodemaps = {{"default", site.nids}};
  EXPECT_FALSE(check(options));
}

TEST_F(CheckedOptions, CertificatesGoWithTls) {
  using Mode = TlsOptions::Mode;
  options.tls = {.mode = Mode::kRequire, .directory = "", .verify_clients = false};
  EXPECT_FALSE(check(options));
  options.tls = {.mode = Mode::kOn, .directory = "/pki", .verify_clients = true};
  EXPECT_TRUE(check(options));
  options.tls = {.mode = Mode::kOff, .directory = "/pki", .verify_clients = false};
  EXPECT_FALSE(check(options)) << "they would not be used";
  options.tls = {.mode = Mode::kOff, .directory = "", .verify_clients = true};
  EXPECT_FALSE(check(options)) << "nobody would be verified";
}

TEST_F(CheckedOptions, LimitsLeaveRoomForTheLargestPayload) {
  options.limits.connection_memory = Bytes{options.exports.back().blocks.maximum - 1};
  EXPECT_FALSE(check(options));
  options.limits.connection_memory = Bytes{options.exports.back().blocks.maximum};
  EXPECT_TRUE(check(options));
  options.limits.connections = 0;
  EXPECT_FALSE(check(options));
}

TEST(ServeLimits, TheDefaultOfMemoryFitsEveryMachine) {
  using Limits = ServeLimits;
  constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
  EXPECT_EQ(Limits::memory_for(Bytes{980 * kMib}), Bytes{245 * kMib})
      << "1 GiB, as the kernel says";
  EXPECT_EQ(Limits::memory_for(Bytes{2048 * kMib}), Bytes{512 * kMib});
  EXPECT_EQ(Limits::memory_for(Bytes{1024 * 1024 * kMib}), Bytes{512 * kMib});
  EXPECT_EQ(Limits::memory_for(Bytes{0}), Bytes{512 * kMib}) << "unknown";
  for (std::uint64_t mib = 128; mib < 5000; ++mib) {
    const Bytes memory = Limits::memory_for(Bytes{mib * kMib});
    EXPECT_LE(memory.count(), mib * kMib / 2);
    EXPECT_GE(memory, Limits{}.connection_memory);
  }
}

TEST(ServeNames, HaveNoControlCharacters) {
  ServeOptions options;
  options.listen.push_back(*parse_listen("127.0.0.1:0"));
  options.exports.push_back(*parse_export("a=memory:1MiB"));
  ASSERT_TRUE(check(options));
  const auto refuses = [&](auto change) {
    ServeOptions changed = options;
    change(changed);
    return !check(changed).has_value();
  };
  EXPECT_TRUE(refuses([](ServeOptions& it) { it.exports[0].name = "a\nb"; }));
  EXPECT_TRUE(refuses([](ServeOptions& it) { it.exports[0].name = std::string("a\0b", 3); }));
  EXPECT_TRUE(refuses([](ServeOptions& it) { it.exports[0].description = "a\x1b[2J"; }));
  EXPECT_TRUE(refuses([](ServeOptions& it) { it.nodemaps.push_back({"x\ny", {}}); }));
  EXPECT_TRUE(refuses([](ServeOptions& it) { it.services.emplace_back().name = "x\ny"; }));
  EXPECT_TRUE(refuses([](ServeOptions& it) { it.groups.groups.emplace_back().name = "x\ny"; }));
  EXPECT_TRUE(refuses([](ServeOptions& it) { it.exports[0].store.size = Bytes{0}; }));
  EXPECT_FALSE(refuses([](ServeOptions& it) { it.exports[0].name = "gr\xc3\xbc\xc3\x9f"; }));
}

TEST(ServeOptions, ADeviceMayBeForced) {
  EXPECT_TRUE(parse_store("device:/dev/sdb,force")->force);
  EXPECT_FALSE(parse_store("device:/dev/sdb")->force);
  EXPECT_FALSE(parse_store("file:/srv/a,force"));
}

}  // namespace
}  // namespace weir::serve
