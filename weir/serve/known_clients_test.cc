// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/known_clients.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

using Jobs = std::vector<JobId>;

Attributes client(std::string_view job, std::string_view nid, std::uint32_t uid) {
  Attributes one;
  one.job = JobId(job);
  one.nid = parse_nid(nid).value_or(Nid{});
  one.uid = uid;
  one.opcode = 3;  // not part of the client
  return one;
}

TEST(KnownClients, JobsOfAClientAndOfAUserNewestFirst) {
  KnownClients clients;
  clients.note(client("dd.0", "10.0.0.1@tcp", 1000));
  clients.note(client("ior.1", "10.0.0.1@tcp", 1001));
  clients.note(client("ior.1", "10.0.0.2@tcp", 1001));
  clients.note(client("dd.0", "10.0.0.1@tcp", 1000));
  EXPECT_EQ(clients.jobs(Field::kNid, client("", "10.0.0.1@tcp", 0)),
            (Jobs{JobId("ior.1"), JobId("dd.0")}));
  EXPECT_EQ(clients.jobs(Field::kUid, client("", "10.0.0.9@tcp", 1001)), (Jobs{JobId("ior.1")}));
  EXPECT_TRUE(clients.jobs(Field::kNid, client("", "10.0.0.9@tcp", 0)).empty());
  EXPECT_TRUE(clients.jobs(Field::kUid, client("", "10.0.0.1@tcp", 7)).empty());
}

TEST(KnownClients, InventedJobsReplaceTheOldest) {
  KnownClients clients;
  clients.note(client("first", "10.0.0.1@tcp", 1));
  for (std::size_t i = 0; i < KnownClients::kMax; ++i) {
    clients.note(client("invented." + std::to_string(i), "10.0.0.2@tcp", 2));
  }
  EXPECT_TRUE(clients.jobs(Field::kUid, client("", "10.0.0.1@tcp", 1)).empty());
  EXPECT_EQ(clients.jobs(Field::kUid, client("", "10.0.0.2@tcp", 2)).size(), KnownClients::kMax);
  clients.note(client("first", "10.0.0.1@tcp", 1));  // it is known again
  EXPECT_EQ(clients.jobs(Field::kUid, client("", "10.0.0.1@tcp", 1)), (Jobs{JobId("first")}));
}

}  // namespace
}  // namespace weir::serve
