// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/opcode.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(Opcode, KnowsTheNumbersOfTheWire) {
  struct Case {
    const char* name;
    std::uint32_t number;
  };
  const Case cases[] = {
      {"ost_reply", 0},         {"ost_read", 3},
      {"ost_write", 4},         {"ost_punch", 10},
      {"ost_sync", 16},         {"ost_ladvise", 21},
      {"ost_seek", 23},         {"mds_getattr", 33},
      {"mds_getattr_lock", 34}, {"mds_get_root", 40},
      {"mds_batch", 63},        {"ldlm_enqueue", 101},
      {"ldlm_set_info", 107},   {"mgs_connect", 250},
      {"obd_ping", 400},        {"llog_origin_handle_open", 501},
      {"quota_acquire", 601},   {"seq_query", 700},
      {"sec_ctx_init", 801},    {"fld_query", 900},
      {"out_update", 1000},     {"lfsck_notify", 1101},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(opcode_number(c.name), c.number) << c.name;
    EXPECT_EQ(opcode_name(c.number), c.name);
  }
}

TEST(Opcode, ReadsNamesOfOlderReleasesToo) {
  EXPECT_EQ(opcode_number("mds_getstatus"), 40U);
  EXPECT_EQ(opcode_number("llog_origin_handle_create"), 501U);
}

TEST(Opcode, HasNoNameForSome) {
  EXPECT_EQ(opcode_name(14), "14");
  EXPECT_EQ(opcode_name(4'000'000'000), "4000000000");
  for (const char* name : {"", "ost_foo", "OST_READ", "ost_read ", "mds_getattr_name", "3"}) {
    EXPECT_FALSE(opcode_number(name)) << name;
  }
}

TEST(Opcode, HasAKindOfOperation) {
  const auto kind = [](const char* name) { return operation_kind(opcode_number(name).value()); };
  EXPECT_EQ(kind("ost_read"), OperationKind::kRead);
  EXPECT_EQ(kind("ost_write"), OperationKind::kWrite);
  EXPECT_EQ(kind("ost_sync"), OperationKind::kFlush);
  EXPECT_EQ(kind("ost_punch"), OperationKind::kDiscard);
  EXPECT_EQ(kind("ost_fallocate"), OperationKind::kZero);
  EXPECT_EQ(kind("mds_getattr"), OperationKind::kMetadataRead);
  EXPECT_EQ(kind("mds_reint"), OperationKind::kMetadataChange);
  EXPECT_EQ(kind("ldlm_enqueue"), OperationKind::kLock);
  EXPECT_EQ(kind("obd_ping"), OperationKind::kOther);
  EXPECT_EQ(operation_kind(14), OperationKind::kOther);
  EXPECT_EQ(operation_kind(4'000'000'000), OperationKind::kOther);
  EXPECT_EQ(operation_name(OperationKind::kMetadataChange), "metadata change");
}

TEST(Opcode, EveryNameReadsBackAsItsNumber) {
  for (std::uint32_t number = 0; number < 2000; ++number) {
    const std::string name = opcode_name(number);
    if (name == std::to_string(number)) continue;
    EXPECT_EQ(opcode_number(name), number);
  }
}

}  // namespace
}  // namespace weir
