// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_record.h"

#include <gtest/gtest.h>

#include "weir/cluster/lock_state.h"

namespace weir::cluster {
namespace {

using Knows = lock::Handover::Knows;

EtcdClient::Entry entry(std::string key, std::string value, std::int64_t modified = 1,
                        std::int64_t lease = 0) {
  return {.key = std::move(key), .value = std::move(value), .modified = modified, .lease = lease};
}

TEST(LockRecord, IsReadAsItWasWritten) {
  host::Key key{};
  key[0] = std::byte{0xab};
  const lock::Handover left{.term = 6, .knows = Knows::kClients, .clients = {1, 0xffff'0000'1234}};
  const auto record = read_lock_record(
      "/weir/locks/",
      {entry("/weir/leader", "whatever"),
       entry("/weir/locks/active", print_active(7, "s1", "10.0.0.1:10811"), 30, 99),
       entry("/weir/locks/key", print_key(key)), entry("/weir/locks/left", print_handover(left)),
       entry("/weir/locks/term", "7", 20), entry("/weir/locks/later", "of a newer version")});
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->terms.term, 7U);
  EXPECT_EQ(record->terms.term_modified, 20);
  EXPECT_EQ(record->terms.active, (lock::TermRecord::Active{7, "s1", "10.0.0.1:10811", 99}));
  EXPECT_EQ(record->active_modified, 30);
  EXPECT_EQ(record->terms.left, left);
  EXPECT_EQ(record->key, key);
}

TEST(LockRecord, AnEmptyOneIsThatOfANewCluster) {
  const auto record = read_lock_record("/weir/locks/", {});
  ASSERT_TRUE(record);
  EXPECT_EQ(record->terms, lock::TermRecord{});
  EXPECT_FALSE(record->key);
}

TEST(LockRecord, WhatNoServerHasWrittenIsRefused) {
  const std::string much(lock::Handover::kClientsMax * 2 + 2, ' ');
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"term", ""},
                                                        {"term", "0"},
                                                        {"term", "-1"},
                                                        {"term", "7 "},
                                                        {"term", "1048576"},
                                                        {"active", ""},
                                                        {"active", "7"},
                                                        {"active", "7 s1"},
                                                        {"active", "x s1 a:1"},
                                                        {"key", "ab"},
                                                        {"key", std::string(64, 'x')},
                                                        {"left", "7"},
                                                        {"left", "7 clean"},
                                                        {"left", "7 unknown 1"},
                                                        {"left", "7 clients 0"},
                                                        {"left", "7 clients x"},
                                                        {"left", "7 clients" + much}}) {
    const auto record = read_lock_record("/p/locks/", {entry("/p/locks/" + name, value)});
    ASSERT_FALSE(record) << name << " " << value;
    EXPECT_EQ(record.error().where, "etcd key /p/locks/" + name);
  }
}

TEST(LockRecord, HandoversSurviveTheirText) {
  for (const lock::Handover& left :
       {lock::Handover{.term = 1}, lock::Handover{.term = 9, .knows = Knows::kClients},
        lock::Handover{.term = 9, .knows = Knows::kClients, .clients = {1, 2, UINT64_MAX}}}) {
    EXPECT_EQ(parse_handover(print_handover(left)), left);
  }
}

}  // namespace
}  // namespace weir::cluster
