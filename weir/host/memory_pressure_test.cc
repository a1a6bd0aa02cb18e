// SPDX-License-Identifier: Apache-2.0
#include "weir/host/memory_pressure.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace weir::host {
namespace {

class FakePressure : public testing::Test {
 protected:
  void SetUp() override {
    events = testing::TempDir() + "memory_events." + std::to_string(getpid()) + "." +
             testing::UnitTest::GetInstance()->current_test_info()->name();
    count(0, 0, 0);
  }
  void TearDown() override { std::filesystem::remove(events); }

  // As the kernel writes memory.events.
  void count(int low, int high, int max) const {
    std::ofstream(events) << "low " << low << "\nhigh " << high << "\nmax " << max
                          << "\noom 0\noom_kill 0\noom_group_kill 0\n";
  }

  std::string events;
};

TEST_F(FakePressure, AnEventOfTheLimitsIsToldOnce) {
  count(0, 7, 1);
  MemoryPressure pressure({.trigger = "", .events = events});
  ASSERT_TRUE(pressure.has_events());
  EXPECT_FALSE(pressure.has_trigger());
  EXPECT_FALSE(pressure.take()) << "what was before does not count";
  count(0, 8, 1);
  EXPECT_TRUE(pressure.take());
  EXPECT_FALSE(pressure.take());
  count(0, 8, 2);
  count(0, 9, 2);
  EXPECT_TRUE(pressure.take());
  EXPECT_FALSE(pressure.take()) << "two between two calls are one";
  count(5, 9, 2);
  EXPECT_FALSE(pressure.take()) << "low is for others";
}

TEST_F(FakePressure, ADescriptorBecomesReadyForWhoPolls) {
  const MemoryPressure pressure({.trigger = "", .events = events});
  auto all = pressure.waits();
  EXPECT_EQ(poll(all.data(), all.size(), 0), 0);
  count(0, 1, 0);
  all = pressure.waits();
  EXPECT_EQ(poll(all.data(), all.size(), -1), 1);
  EXPECT_EQ(all[1].revents, POLLIN);
}

TEST_F(FakePressure, WhatCannotBeOpenedIsLeftOut) {
  MemoryPressure none({.trigger = "/nonexistent", .events = "/nonexistent"});
  EXPECT_FALSE(none.has_trigger());
  EXPECT_FALSE(none.has_events());
  EXPECT_FALSE(none.take());
  std::filesystem::remove(events);
  EXPECT_FALSE(MemoryPressure({.trigger = "", .events = events}).has_events());
}

// A connection over loopback: urgent data makes one end ready with POLLPRI, like a trigger.
struct Urgent {
  Urgent() {
    const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), name, size), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), name, &size), 0);
    sender = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(sender.get(), name, size), 0);
    trigger = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  Fd sender;
  Fd trigger;
};

TEST_F(FakePressure, ATriggerIsPolledForPriorityEvents) {
  Urgent urgent;
  MemoryPressure pressure(std::move(urgent.trigger), "");
  ASSERT_TRUE(pressure.has_trigger());
  EXPECT_FALSE(pressure.take());
  ASSERT_EQ(send(urgent.sender.get(), "", 1, 0), 1);
  EXPECT_FALSE(pressure.take()) << "only readable";
  ASSERT_EQ(send(urgent.sender.get(), "!", 1, MSG_OOB), 1);
  auto all = pressure.waits();
  EXPECT_EQ(poll(all.data(), all.size(), -1), 1);
  EXPECT_EQ(all[0].revents, POLLPRI);
  EXPECT_TRUE(pressure.take());
}

TEST_F(FakePressure, ATriggerWhoseCgroupIsGoneIsGivenUp) {
  Urgent urgent;
  MemoryPressure pressure(std::move(urgent.trigger), events);
  const linger at_once{1, 0};  // the other end sees an error
  ASSERT_EQ(setsockopt(urgent.sender.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  urgent.sender = Fd();
  EXPECT_FALSE(pressure.take());
  EXPECT_FALSE(pressure.has_trigger());
  count(0, 1, 0);
  EXPECT_TRUE(pressure.take()) << "the other source goes on";
}

// If this kernel has the file and it is writable.
TEST(MemoryPressure, SetsATriggerOfTheKernel) {
  constexpr const char* kFile = "/proc/pressure/memory";
  const bool is_there = Fd(open(kFile, O_RDWR | O_CLOEXEC)).is_open();
  const MemoryPressure pressure({.trigger = kFile, .events = ""});
  EXPECT_EQ(pressure.has_trigger(), is_there);
}

TEST(MemoryPressure, KnowsWhereToLook) {
  EXPECT_FALSE(MemoryPressure::of_this_process().trigger.empty());
}

}  // namespace
}  // namespace weir::host
