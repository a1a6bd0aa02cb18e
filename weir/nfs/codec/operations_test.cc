// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/operations.h"

#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "weir/nfs/codec/form.h"
#include "weir/nfs/codec/xdr_writer.h"

namespace weir::nfs {
namespace {

using Fields = std::function<void(XdrWriter&)>;

// Types of RFC 7863, field by field: independent of the short forms in the table.
XdrWriter& stateid(XdrWriter& to) { return to.u32(1).zeros(12); }
XdrWriter& bitmap(XdrWriter& to) { return to.u32(2).u32(0x18).u32(0x30); }
XdrWriter& attributes(XdrWriter& to) { return bitmap(to).opaque("values"); }
XdrWriter& change(XdrWriter& to) { return to.u32(1).u64(7).u64(8); }
XdrWriter& time_of(XdrWriter& to) { return to.u64(1'700'000'000).u32(5); }
XdrWriter& implementation(XdrWriter& to) {
  return time_of(to.u32(1).opaque("kernel.org").opaque("Linux"));
}
XdrWriter& channel(XdrWriter& to) {
  return to.u32(0).u32(1049620).u32(1049480).u32(7584).u32(8).u32(64).u32(1).u32(0);
}
XdrWriter& ace(XdrWriter& to) { return to.u32(0).u32(0).u32(1).opaque("OWNER@"); }
XdrWriter& write_delegation(XdrWriter& to) {
  return ace(stateid(to.u32(2)).u32(0).u32(1).u64(1U << 20));
}
XdrWriter& netloc(XdrWriter& to) { return to.u32(3).opaque("tcp").opaque("10.0.0.1.8.1"); }
XdrWriter& write_response(XdrWriter& to) { return stateid(to.u32(1)).u64(4096).u32(2).u64(9); }
XdrWriter& callback_security(XdrWriter& to) {
  to.u32(3).u32(0);
  to.u32(1).u32(7).opaque("host").u32(0).u32(0).u32(2).u32(1).u32(2);
  return to.u32(6).u32(1).opaque("from server").opaque("from client");
}
XdrWriter& denied_lock(XdrWriter& to) {
  return to.u64(0).u64(~std::uint64_t{0}).u32(2).u64(77).opaque("owner");
}
XdrWriter& security(XdrWriter& to) { return to.u32(2).u32(1).u32(6).opaque("oid").u32(0).u32(2); }
XdrWriter& session_id(XdrWriter& to) { return to.zeros(16); }

const Fields kNothing = [](XdrWriter&) {};
const Fields kName = [](XdrWriter& w) { w.opaque("name"); };
const Fields kStateId = [](XdrWriter& w) { stateid(w); };
const Fields kChanged = [](XdrWriter& w) { change(w); };

struct Sample {
  std::uint32_t number;
  Fields arguments;
  Fields results;
  Fields failure = nullptr;  // after failure_status
};

const Sample kOfVersion0[] = {
    {3, [](XdrWriter& w) { w.u32(0x1f); }, [](XdrWriter& w) { w.u32(0x1f).u32(0x3); }},
    {4, [](XdrWriter& w) { stateid(w.u32(0)); }, kStateId},
    {5, [](XdrWriter& w) { w.u64(0).u32(0); }, [](XdrWriter& w) { w.u64(9); }},
    {6, [](XdrWriter& w) { attributes(w.u32(5).opaque("target").opaque("link")); },
     [](XdrWriter& w) { bitmap(change(w)); }},
    {6, [](XdrWriter& w) { attributes(w.u32(4).u32(1).u32(3).opaque("device")); },
     [](XdrWriter& w) { bitmap(change(w)); }},
    {6, [](XdrWriter& w) { attributes(w.u32(2).opaque("folder")); },
     [](XdrWriter& w) { bitmap(change(w)); }},
    {7, [](XdrWriter& w) { w.u64(1); }, kNothing},
    {8, kStateId, kNothing},
    {9, [](XdrWriter& w) { bitmap(w); }, [](XdrWriter& w) { attributes(w); }},
    {10, kNothing, [](XdrWriter& w) { w.opaque("handle"); }},
    {11, kName, kChanged},
    {12,
     [](XdrWriter& w) {
       stateid(w.u32(2).u32(0).u64(0).u64(10).u32(1).u32(5)).u32(0).u64(77).opaque("owner");
     },
     kStateId, [](XdrWriter& w) { denied_lock(w); }},
    {12, [](XdrWriter& w) { stateid(w.u32(2).u32(1).u64(0).u64(10).u32(0)).u32(6); }, kStateId},
    {13, [](XdrWriter& w) { w.u32(1).u64(0).u64(10).u64(77).opaque("owner"); }, kNothing,
     [](XdrWriter& w) { denied_lock(w); }},
    {14, [](XdrWriter& w) { stateid(w.u32(2).u32(6)).u64(0).u64(10); }, kStateId},
    {15, kName, kNothing},
    {16, kNothing, kNothing},
    {17, [](XdrWriter& w) { attributes(w); }, kNothing},
    // OPEN without creation, by name; and all kinds of creation and claims
    {18,
     [](XdrWriter& w) {
       w.u32(0).u32(1).u32(0).u64(77).opaque("owner").u32(0).u32(0).opaque("name");
     },
     [](XdrWriter& w) { bitmap(change(stateid(w)).u32(4)).u32(0); }},
    {18,
     [](XdrWriter& w) {
       attributes(w.u32(0).u32(3).u32(0).u64(77).opaque("owner").u32(1).u32(0)).u32(1).u32(2);
     },
     [](XdrWriter& w) { write_delegation(bitmap(change(stateid(w)).u32(4))); }},
    {18,
     [](XdrWriter& w) {
       stateid(w.u32(0).u32(3).u32(0).u64(77).opaque("owner").u32(1).u32(2).u64(5).u32(2));
       w.opaque("name");
     },
     [](XdrWriter& w) { ace(stateid(bitmap(change(stateid(w)).u32(4)).u32(1)).u32(0)); }},
    {18,
     [](XdrWriter& w) {
       attributes(w.u32(0).u32(3).u32(0).u64(77).opaque("owner").u32(1).u32(3).u64(5)).u32(4);
     },
     [](XdrWriter& w) { bitmap(change(stateid(w)).u32(4)).u32(3).u32(1).u32(0); }},
    {18,
     [](XdrWriter& w) { stateid(w.u32(0).u32(3).u32(0).u64(77).opaque("owner").u32(0).u32(5)); },
     [](XdrWriter& w) { bitmap(change(stateid(w)).u32(4)).u32(3).u32(0); }},
    {19, [](XdrWriter& w) { w.u32(0); }, kNothing},
    {20, [](XdrWriter& w) { stateid(w).u32(1); }, kStateId},
    {21, [](XdrWriter& w) { stateid(w).u32(1).u32(1).u32(0); }, kStateId},
    {22, [](XdrWriter& w) { w.opaque("handle"); }, kNothing},
    {23, kNothing, kNothing},
    {24, kNothing, kNothing},
    {25, [](XdrWriter& w) { stateid(w).u64(0).u32(4096); },
     [](XdrWriter& w) { w.u32(1).opaque("hello"); }},
    {26, [](XdrWriter& w) { bitmap(w.u64(0).u64(0).u32(512).u32(4096)); },
     [](XdrWriter& w) {
       attributes(w.u64(1).u32(1).u64(3).opaque("one"));
       attributes(w.u32(1).u64(4).opaque("two")).u32(0).u32(1);
     }},
    {27, kNothing, [](XdrWriter& w) { w.opaque("target"); }},
    {28, kName, kChanged},
    {29, [](XdrWriter& w) { w.opaque("from").opaque("to"); },
     [](XdrWriter& w) { change(change(w)); }},
    {30, [](XdrWriter& w) { w.u64(77); }, kNothing},
    {31, kNothing, kNothing},
    {32, kNothing, kNothing},
    {33, kName, [](XdrWriter& w) { security(w); }},
    {34, [](XdrWriter& w) { attributes(stateid(w)); }, [](XdrWriter& w) { bitmap(w); },
     [](XdrWriter& w) { w.u32(0); }},
    {35,
     [](XdrWriter& w) {
       w.u64(5).opaque("Linux NFSv4.0 host").u32(0x40000000).opaque("tcp").opaque("1.2.3.4.5.6");
       w.u32(1);
     },
     [](XdrWriter& w) { w.u64(77).u64(5); },
     [](XdrWriter& w) { w.opaque("tcp").opaque("1.2.3.4.5.6"); }},
    {36, [](XdrWriter& w) { w.u64(77).u64(5); }, kNothing},
    {37, [](XdrWriter& w) { attributes(w); }, kNothing},
    {38, [](XdrWriter& w) { stateid(w).u64(0).u32(0).opaque("payload"); },
     [](XdrWriter& w) { w.u32(7).u32(0).u64(9); }},
    {39, [](XdrWriter& w) { w.u64(77).opaque("owner"); }, kNothing},
};

const Sample kOfVersion1[] = {
    {40, [](XdrWriter& w) { callback_security(w.u32(0x40000000)); }, kNothing},
    {41, [](XdrWriter& w) { session_id(w).u32(3).u32(0); },
     [](XdrWriter& w) { session_id(w).u32(3).u32(0); }},
    {42,
     [](XdrWriter& w) { implementation(w.u64(5).opaque("Linux NFSv4.1 host").u32(0x101).u32(0)); },
     [](XdrWriter& w) {
       w.u64(77).u32(1).u32(0x20001).u32(0).u64(0).opaque("major").opaque("scope");
       implementation(w);
     }},
    {42, [](XdrWriter& w) { bitmap(bitmap(w.u64(5).opaque("owner").u32(0).u32(1))).u32(0); },
     [](XdrWriter& w) {
       bitmap(bitmap(w.u64(77).u32(1).u32(0).u32(1))).u64(0).opaque("m").opaque("s").u32(0);
     }},
    {42,
     [](XdrWriter& w) {
       bitmap(bitmap(w.u64(5).opaque("owner").u32(0).u32(2))).u32(1).opaque("hash").u32(1);
       w.opaque("cipher").u32(64).u32(1).u32(0);
     },
     [](XdrWriter& w) {
       bitmap(bitmap(w.u64(77).u32(1).u32(0).u32(2))).u32(0).u32(0).u32(32).u32(64).u32(1);
       w.opaque("handle").u64(0).opaque("m").opaque("s").u32(0);
     }},
    {43,
     [](XdrWriter& w) {
       callback_security(channel(channel(w.u64(77).u32(1).u32(3))).u32(0x40000000));
     },
     [](XdrWriter& w) { channel(channel(session_id(w).u32(1).u32(2))); }},
    {44, [](XdrWriter& w) { session_id(w); }, kNothing},
    {45, kStateId, kNothing},
    {46, [](XdrWriter& w) { bitmap(bitmap(time_of(time_of(bitmap(w.u32(0)))))); },
     [](XdrWriter& w) { bitmap(bitmap(bitmap(stateid(w.u32(0).u64(1))))); }},
    {46, [](XdrWriter& w) { bitmap(bitmap(time_of(time_of(bitmap(w.u32(0)))))); },
     [](XdrWriter& w) { w.u32(1).u32(0); }},
    {47, [](XdrWriter& w) { bitmap(w.zeros(16).u32(1).u32(4096)); },
     [](XdrWriter& w) { bitmap(w.u32(1).opaque("address")); }, [](XdrWriter& w) { w.u32(8192); }},
    {48, [](XdrWriter& w) { w.u32(1).u32(8).u64(0).u64(0); },
     [](XdrWriter& w) { w.u64(0).u64(0).u32(2).zeros(32).u32(1); }},
    {49,
     [](XdrWriter& w) {
       time_of(stateid(w.u64(0).u64(10).u32(0)).u32(1).u64(9).u32(1)).u32(1).opaque("update");
     },
     [](XdrWriter& w) { w.u32(1).u64(10); }},
    {50, [](XdrWriter& w) { stateid(w.u32(0).u32(1).u32(1).u64(0).u64(10).u64(1)).u32(4096); },
     [](XdrWriter& w) { stateid(w.u32(0)).u32(1).u64(0).u64(10).u32(1).u32(1).opaque("layout"); },
     [](XdrWriter& w) { w.u32(1); }},
    {51, [](XdrWriter& w) { stateid(w.u32(0).u32(1).u32(3).u32(1).u64(0).u64(9)).opaque("body"); },
     [](XdrWriter& w) { stateid(w.u32(1)); }},
    {51, [](XdrWriter& w) { w.u32(0).u32(1).u32(3).u32(3); }, [](XdrWriter& w) { w.u32(0); }},
    {52, [](XdrWriter& w) { w.u32(0); }, [](XdrWriter& w) { security(w); }},
    {53, [](XdrWriter& w) { session_id(w).u32(55).u32(0).u32(3).u32(1); },
     [](XdrWriter& w) { session_id(w).u32(55).u32(0).u32(63).u32(63).u32(0); }},
    {54, [](XdrWriter& w) { w.opaque("ssv").opaque("digest"); },
     [](XdrWriter& w) { w.opaque("digest"); }},
    {55, [](XdrWriter& w) { stateid(stateid(w.u32(2))); },
     [](XdrWriter& w) { w.u32(2).u32(0).u32(10025); }},
    {56, [](XdrWriter& w) { w.u32(0x100).u32(1).u32(1); },
     [](XdrWriter& w) { write_delegation(w); }},
    {56, [](XdrWriter& w) { w.u32(0x100).u32(4); }, [](XdrWriter& w) { w.u32(3).u32(7); }},
    {57, [](XdrWriter& w) { w.u64(77); }, kNothing},
    {58, [](XdrWriter& w) { w.u32(0); }, kNothing},
};

const Sample kOfVersion2[] = {
    {59, [](XdrWriter& w) { stateid(w).u64(0).u64(4096); }, kNothing},
    {60,
     [](XdrWriter& w) { netloc(stateid(stateid(w)).u64(0).u64(0).u64(4096).u32(1).u32(1).u32(1)); },
     [](XdrWriter& w) { write_response(w).u32(1).u32(1); }, [](XdrWriter& w) { w.u32(1).u32(1); }},
    {61, [](XdrWriter& w) { netloc(stateid(w)); },
     [](XdrWriter& w) { netloc(stateid(time_of(w)).u32(1)); }},
    {62, [](XdrWriter& w) { stateid(w).u64(0).u64(4096); }, kNothing},
    {63, [](XdrWriter& w) { bitmap(stateid(w).u64(0).u64(0)); }, [](XdrWriter& w) { bitmap(w); }},
    {64, [](XdrWriter& w) { stateid(w.u64(0).u64(9)).u32(1).zeros(16).u32(5).u32(38); }, kNothing},
    {65,
     [](XdrWriter& w) {
       stateid(w.u64(0).u64(9)).u64(1).u64(2).u64(3).u64(4).zeros(16).u32(4).opaque("stats");
     },
     kNothing},
    {66, kStateId, kNothing},
    {67, kStateId, [](XdrWriter& w) { w.u64(4096).u32(1).u32(0); }},
    {68, [](XdrWriter& w) { stateid(w).u64(0).u32(65536); },
     [](XdrWriter& w) { w.u32(1).u32(2).u32(0).u64(0).opaque("hello").u32(1).u64(5).u64(100); }},
    {69, [](XdrWriter& w) { stateid(w).u64(0).u32(1); }, [](XdrWriter& w) { w.u32(0).u64(4096); }},
    {70,
     [](XdrWriter& w) {
       stateid(w).u32(2).u64(0).u64(512).u64(8).u64(0).u32(0).u64(0).opaque("pattern");
     },
     [](XdrWriter& w) { write_response(w); }},
    {71, [](XdrWriter& w) { stateid(stateid(w)).u64(0).u64(0).u64(4096); }, kNothing},
    {72, kName, [](XdrWriter& w) { w.opaque("value"); }},
    {73, [](XdrWriter& w) { w.u32(0).opaque("user.key").opaque("value"); }, kChanged},
    {74, [](XdrWriter& w) { w.u64(0).u32(4096); },
     [](XdrWriter& w) { w.u64(2).u32(2).opaque("user.a").opaque("user.bc").u32(1); }},
    {75, kName, kChanged},
};

const Sample kOfCallbacks[] = {
    {3, [](XdrWriter& w) { bitmap(w.opaque("handle")); }, [](XdrWriter& w) { attributes(w); }},
    {4, [](XdrWriter& w) { stateid(w).u32(0).opaque("handle"); }, kNothing},
    {5, [](XdrWriter& w) { stateid(w.u32(1).u32(3).u32(0).u32(1).opaque("handle").u64(0).u64(9)); },
     kNothing},
    {5, [](XdrWriter& w) { w.u32(1).u32(3).u32(0).u32(2).u64(1).u64(2); }, kNothing},
    {5, [](XdrWriter& w) { w.u32(1).u32(3).u32(0).u32(3); }, kNothing},
    {6, [](XdrWriter& w) { bitmap(stateid(w).opaque("handle").u32(1)).opaque("entries"); },
     kNothing},
    {7, [](XdrWriter& w) { write_delegation(w.opaque("handle")); }, kNothing},
    {8, [](XdrWriter& w) { bitmap(w.u32(10)); }, kNothing},
    {9, [](XdrWriter& w) { bitmap(w.u32(10)); }, kNothing},
    {10, [](XdrWriter& w) { w.u32(3); }, kNothing},
    {11,
     [](XdrWriter& w) {
       session_id(w).u32(1).u32(0).u32(0).u32(0).u32(1);
       session_id(w).u32(2).u32(4).u32(0).u32(5).u32(1);
     },
     [](XdrWriter& w) { session_id(w).u32(1).u32(0).u32(15).u32(15); }},
    {12, [](XdrWriter& w) { w.u32(1).u32(0); }, kNothing},
    {13, [](XdrWriter& w) { w.opaque("handle").u64(77).opaque("owner"); }, kNothing},
    {14, [](XdrWriter& w) { bitmap(w.u32(1)).opaque("device"); }, kNothing},
    {15, [](XdrWriter& w) { write_response(stateid(w.opaque("handle")).u32(0)); }, kNothing},
    {15, [](XdrWriter& w) { stateid(w.opaque("handle")).u32(28).u64(100); }, kNothing},
};

// The form covers all of the fields, and no part of them.
void expect_exact(const Operation& operation, std::string_view form, const Fields& fields) {
  XdrWriter writer;
  fields(writer);
  XdrReader reader(whole(writer.bytes()));
  walk(reader, form);
  EXPECT_TRUE(reader.good()) << operation.name;
  EXPECT_EQ(reader.left(), 0U) << operation.name << " " << form;
  for (std::size_t size = 0; size < writer.text().size(); ++size) {
    XdrReader part(whole(writer.bytes().first(size)));
    walk(part, form);
    EXPECT_EQ(part.state(), XdrState::kShort) << operation.name << " " << size;
  }
}

void expect_exact(const Operation* operation, const Sample& sample) {
  ASSERT_NE(operation, nullptr) << sample.number;
  expect_exact(*operation, operation->arguments, sample.arguments);
  expect_exact(*operation, operation->results, sample.results);
  if (sample.failure) expect_exact(*operation, operation->failure, sample.failure);
}

TEST(NfsOperations, EveryOperationIsWalkedToItsExactEnd) {
  std::set<std::uint32_t> seen;
  for (const std::span<const Sample> samples :
       std::initializer_list<std::span<const Sample>>{kOfVersion0, kOfVersion1, kOfVersion2}) {
    for (const Sample& sample : samples) {
      expect_exact(find_operation(sample.number), sample);
      seen.insert(sample.number);
    }
  }
  for (std::uint32_t number = 0; number < kOperationsEnd; ++number) {
    EXPECT_EQ(find_operation(number) != nullptr, seen.contains(number)) << number;
  }
}

TEST(NfsOperations, EveryCallbackIsWalkedToItsExactEnd) {
  std::set<std::uint32_t> seen;
  for (const Sample& sample : kOfCallbacks) {
    expect_exact(find_callback_operation(sample.number), sample);
    seen.insert(sample.number);
  }
  for (std::uint32_t number = 0; number < kCallbackOperationsEnd; ++number) {
    EXPECT_EQ(find_callback_operation(number) != nullptr, seen.contains(number)) << number;
  }
}

TEST(NfsOperations, NumbersAreThoseOfTheRfc) {
  EXPECT_EQ(find_operation(Op::kSequence)->name, "SEQUENCE");
  EXPECT_EQ(find_operation(Op::kDelegReturn)->name, "DELEGRETURN");
  EXPECT_EQ(find_operation(Op::kLayoutGet)->name, "LAYOUTGET");
  EXPECT_EQ(find_operation(Op::kClone)->name, "CLONE");
  EXPECT_EQ(find_operation(Op::kSetXattr)->name, "SETXATTR");
  EXPECT_EQ(find_callback_operation(4)->name, "CB_RECALL");
  EXPECT_EQ(find_operation(76), nullptr);
  EXPECT_EQ(find_operation(0), nullptr);
  EXPECT_EQ(find_operation(kIllegalOperation)->name, "ILLEGAL");
  EXPECT_EQ(find_callback_operation(16), nullptr);
}

// Operations that never wait, and those that always do.
TEST(NfsOperations, TurnsOfOperations) {
  for (const std::uint32_t state :
       {7U, 30U, 33U, 35U, 36U, 39U, 40U, 41U, 42U, 43U, 44U, 45U, 52U, 53U, 54U, 55U, 57U, 58U}) {
    EXPECT_EQ(find_operation(state)->turn, Turn::kState) << find_operation(state)->name;
  }
  for (const std::uint32_t release : {4U, 8U, 14U, 20U, 21U, 49U, 51U, 66U}) {
    EXPECT_EQ(find_operation(release)->turn, Turn::kRelease) << find_operation(release)->name;
  }
  for (const std::uint32_t bytes : {25U, 26U, 38U, 59U, 60U, 62U, 68U, 70U, 71U}) {
    EXPECT_EQ(find_operation(bytes)->turn, Turn::kBytes) << find_operation(bytes)->name;
  }
  for (const std::uint32_t handle : {10U, 22U, 23U, 24U, 31U, 32U}) {
    EXPECT_EQ(find_operation(handle)->turn, Turn::kHandle) << find_operation(handle)->name;
  }
  std::size_t ordinary = 0;
  for (std::uint32_t number = 0; number < kOperationsEnd; ++number) {
    const Operation* operation = find_operation(number);
    if (operation != nullptr && operation->turn == Turn::kOrdinary) ++ordinary;
  }
  EXPECT_EQ(ordinary, 73U - 18 - 8 - 9 - 6);
}

}  // namespace
}  // namespace weir::nfs
