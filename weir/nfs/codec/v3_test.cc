// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/v3.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "weir/nfs/codec/form.h"
#include "weir/nfs/codec/rpc.h"
#include "weir/nfs/codec/xdr_writer.h"

namespace weir::nfs {
namespace {

const std::string kHandle(28, 'h');

const Procedure3& procedure(Proc3 number) {
  return *find_procedure3(kNfsProgram, static_cast<std::uint32_t>(number));
}

// Fields of RFC 1813, section 2.6.
XdrWriter& sattr(XdrWriter& to) {
  return to.u32(1).u32(0644).u32(0).u32(0).u32(1).u64(0).u32(1).u32(2).u64(5);
}
XdrWriter& post_op(XdrWriter& to) { return to.u32(1).zeros(84); }
XdrWriter& wcc(XdrWriter& to) { return post_op(to.u32(1).zeros(24)); }
XdrWriter& post_op_handle(XdrWriter& to) { return to.u32(1).opaque(kHandle); }

struct Sample {
  Proc3 procedure;
  std::function<void(XdrWriter&)> arguments;  // after the file handle
  std::function<void(XdrWriter&)> results;    // after a status of 0
};

// Section 3.3: arguments and results of all procedures, field by field.
const Sample kSamples[] = {
    {Proc3::kGetAttr, [](XdrWriter&) {}, [](XdrWriter& r) { r.zeros(84); }},
    {Proc3::kSetAttr, [](XdrWriter& a) { sattr(a).u32(1).u64(7); }, [](XdrWriter& r) { wcc(r); }},
    {Proc3::kLookup, [](XdrWriter& a) { a.opaque("name"); },
     [](XdrWriter& r) { post_op(post_op(r.opaque(kHandle))); }},
    {Proc3::kAccess, [](XdrWriter& a) { a.u32(0x1f); }, [](XdrWriter& r) { post_op(r).u32(0x1f); }},
    {Proc3::kReadLink, [](XdrWriter&) {}, [](XdrWriter& r) { post_op(r).opaque("../target"); }},
    {Proc3::kRead, [](XdrWriter& a) { a.u64(4096).u32(65536); },
     [](XdrWriter& r) { post_op(r).u32(5).u32(1).opaque("hello"); }},
    {Proc3::kWrite, [](XdrWriter& a) { a.u64(4096).u32(5).u32(2).opaque("hello"); },
     [](XdrWriter& r) { wcc(r).u32(5).u32(2).u64(99); }},
    {Proc3::kCreate, [](XdrWriter& a) { sattr(a.opaque("name").u32(1)); },
     [](XdrWriter& r) { wcc(post_op(post_op_handle(r))); }},
    {Proc3::kMkDir, [](XdrWriter& a) { sattr(a.opaque("name")); },
     [](XdrWriter& r) { wcc(post_op(post_op_handle(r))); }},
    {Proc3::kSymLink, [](XdrWriter& a) { sattr(a.opaque("name")).opaque("target"); },
     [](XdrWriter& r) { wcc(post_op(post_op_handle(r))); }},
    {Proc3::kMkNod, [](XdrWriter& a) { sattr(a.opaque("name").u32(4)).u32(1).u32(3); },
     [](XdrWriter& r) { wcc(post_op(post_op_handle(r))); }},
    {Proc3::kRemove, [](XdrWriter& a) { a.opaque("name"); }, [](XdrWriter& r) { wcc(r); }},
    {Proc3::kRmDir, [](XdrWriter& a) { a.opaque("name"); }, [](XdrWriter& r) { wcc(r); }},
    {Proc3::kRename, [](XdrWriter& a) { a.opaque("from").opaque(kHandle).opaque("to"); },
     [](XdrWriter& r) { wcc(wcc(r)); }},
    {Proc3::kLink, [](XdrWriter& a) { a.opaque(kHandle).opaque("name"); },
     [](XdrWriter& r) { wcc(post_op(r)); }},
    {Proc3::kReadDir, [](XdrWriter& a) { a.u64(0).u64(0).u32(4096); },
     [](XdrWriter& r) {
       post_op(r).u64(1).u32(1).u64(12).opaque("a").u64(1).u32(1).u64(13).opaque("bc").u64(2);
       r.u32(0).u32(1);
     }},
    {Proc3::kReadDirPlus, [](XdrWriter& a) { a.u64(0).u64(0).u32(512).u32(32768); },
     [](XdrWriter& r) {
       post_op(r).u64(1).u32(1).u64(12).opaque("a").u64(1);
       post_op_handle(post_op(r)).u32(1).u64(13).opaque("b").u64(2).u32(0).u32(0);
       r.u32(0).u32(1);
     }},
    {Proc3::kFsStat, [](XdrWriter&) {}, [](XdrWriter& r) { post_op(r).zeros(6 * 8 + 4); }},
    {Proc3::kFsInfo, [](XdrWriter&) {}, [](XdrWriter& r) { post_op(r).zeros(7 * 4 + 8 + 8 + 4); }},
    {Proc3::kPathConf, [](XdrWriter&) {}, [](XdrWriter& r) { post_op(r).zeros(6 * 4); }},
    {Proc3::kCommit, [](XdrWriter& a) { a.u64(0).u32(0); }, [](XdrWriter& r) { wcc(r).u64(99); }},
};
static_assert(std::size(kSamples) == kProcedures3 - 1);  // all except NULL

XdrWriter arguments_of(const Sample& sample) {
  XdrWriter writer;
  writer.opaque(kHandle);
  sample.arguments(writer);
  return writer;
}

TEST(Nfs3, ReadsTheArgumentsOfAllProceduresToTheEnd) {
  for (const Sample& sample : kSamples) {
    const Procedure3& one = procedure(sample.procedure);
    const XdrWriter arguments = arguments_of(sample);
    const Call3 call = read_call3(one, XdrReader(whole(arguments.bytes())));
    EXPECT_EQ(call.end, XdrState::kGood) << one.name;
    EXPECT_EQ(call.file_handle.size(), kHandle.size()) << one.name;
    // Fields that are read one by one match the form in the table.
    XdrReader reader(whole(arguments.bytes()));
    walk(reader, "o");
    walk(reader, one.arguments);
    EXPECT_TRUE(reader.good() && reader.left() == 0) << one.name;
    for (std::size_t size = 0; size < arguments.text().size(); ++size) {
      const Bytes front = arguments.bytes().first(size);
      EXPECT_EQ(read_call3(one, XdrReader(whole(front))).end, XdrState::kShort) << one.name;
    }
  }
}

TEST(Nfs3, ReadsTheResultsOfAllProceduresToTheEnd) {
  for (const Sample& sample : kSamples) {
    const Procedure3& one = procedure(sample.procedure);
    XdrWriter results;
    sample.results(results.u32(0));
    const Reply3 reply = read_reply3(one, XdrReader(whole(results.bytes())));
    EXPECT_EQ(reply.end, XdrState::kGood) << one.name;
    XdrReader reader(whole(results.bytes().subspan(4)));
    walk(reader, one.results);
    EXPECT_TRUE(reader.good() && reader.left() == 0) << one.name;
  }
}

TEST(Nfs3, AFailureWithoutAttributesIsAFewZeros) {
  for (const Sample& sample : kSamples) {
    const Procedure3& one = procedure(sample.procedure);
    XdrWriter results;
    results.u32(kJukebox).zeros(std::size_t{4} * one.failure_words);
    const Reply3 reply = read_reply3(one, XdrReader(whole(results.bytes())));
    EXPECT_EQ(reply.end, XdrState::kGood) << one.name;
    EXPECT_EQ(reply.status, kJukebox);
    EXPECT_EQ(reply.returned, 0U);
  }
}

TEST(Nfs3, ProceduresHaveTheKindsOfWeir) {
  EXPECT_EQ(procedure(Proc3::kRead).kind, OperationKind::kRead);
  EXPECT_EQ(procedure(Proc3::kWrite).kind, OperationKind::kWrite);
  EXPECT_EQ(procedure(Proc3::kCommit).kind, OperationKind::kFlush);
  EXPECT_EQ(procedure(Proc3::kReadDirPlus).kind, OperationKind::kMetadataRead);
  for (const Proc3 changes :
       {Proc3::kSetAttr, Proc3::kCreate, Proc3::kMkDir, Proc3::kSymLink, Proc3::kMkNod,
        Proc3::kRemove, Proc3::kRmDir, Proc3::kRename, Proc3::kLink}) {
    EXPECT_EQ(procedure(changes).kind, OperationKind::kMetadataChange);
  }
  EXPECT_EQ(find_procedure3(kNfsProgram, kProcedures3), nullptr);
  EXPECT_EQ(find_procedure3(kNfsAclProgram, kAclProcedures), nullptr);
  EXPECT_EQ(find_procedure3(kMountProgram, 1), nullptr);
}

Call3 call_of(Proc3 number) {
  for (const Sample& sample : kSamples) {
    if (sample.procedure != number) continue;
    const XdrWriter arguments = arguments_of(sample);
    return read_call3(procedure(number), XdrReader(whole(arguments.bytes())));
  }
  return {};
}

TEST(Nfs3, CostsAreWhatIsAskedAndSent) {
  EXPECT_EQ(call_of(Proc3::kGetAttr).cost, (Cost{1, 0}));
  EXPECT_EQ(call_of(Proc3::kRead).cost, (Cost{1, 65536}));
  EXPECT_EQ(call_of(Proc3::kRead).offset, 4096U);
  EXPECT_EQ(call_of(Proc3::kWrite).cost, (Cost{1, 5}));
  EXPECT_EQ(call_of(Proc3::kReadDir).cost, (Cost{1, 4096}));
  EXPECT_EQ(call_of(Proc3::kReadDirPlus).cost, (Cost{1, 32768}));
  EXPECT_EQ(call_of(Proc3::kCommit).cost, (Cost{1, 0}));
}

TEST(Nfs3, AWriteIsReadFromItsFirstBytes) {
  XdrWriter arguments;
  arguments.opaque(kHandle).u64(0).u32(1U << 20).u32(0).opaque(std::string(1U << 20, 'x'));
  const MessageView head = {arguments.bytes().first(200), arguments.text().size()};
  const Call3 call = read_call3(procedure(Proc3::kWrite), XdrReader(head));
  EXPECT_EQ(call.end, XdrState::kMissing);
  EXPECT_EQ(call.sent, 1U << 20);
  EXPECT_EQ(call.cost, (Cost{1, 1U << 20}));
}

TEST(Nfs3, ALargeReadIsSettledByTheFirstBytesOfItsReply) {
  XdrWriter results;
  post_op(results.u32(0)).u32(100'000).u32(0).opaque(std::string(100'000, 'x'));
  const MessageView head = {results.bytes().first(128), results.text().size()};
  const Reply3 reply = read_reply3(procedure(Proc3::kRead), XdrReader(head));
  EXPECT_EQ(reply.returned, 100'000U);
}

TEST(Nfs3, AReplyThatLiesCountsByItsLength) {
  XdrWriter results;
  results.u32(0).u32(0).u32(9).u32(0).u32(0xFFFFFFFF).zeros(100);
  const Reply3 reply = read_reply3(procedure(Proc3::kRead), XdrReader(whole(results.bytes())));
  EXPECT_EQ(reply.end, XdrState::kShort);
  EXPECT_EQ(reply.returned, results.text().size() - 4);
}

TEST(Nfs3, TrailingBytesAndLongHandlesAreNoticed) {
  XdrWriter more;
  more.opaque(kHandle).u32(0);
  EXPECT_EQ(read_call3(procedure(Proc3::kGetAttr), XdrReader(whole(more.bytes()))).end,
            XdrState::kUnknown);
  XdrWriter handle;
  handle.opaque(std::string(65, 'h'));
  EXPECT_EQ(read_call3(procedure(Proc3::kGetAttr), XdrReader(whole(handle.bytes()))).end,
            XdrState::kUnknown);
}

TEST(NfsAcl, ReadsBothProcedures) {
  const auto entries = [](XdrWriter& to, std::uint32_t count) {
    to.u32(count).u32(count);
    for (std::uint32_t i = 0; i < count; ++i) to.u32(1).u32(1000 + i).u32(7);
  };
  const Procedure3& get = *find_procedure3(kNfsAclProgram, 1);
  XdrWriter get_arguments;
  get_arguments.opaque(kHandle).u32(0xf);
  EXPECT_EQ(read_call3(get, XdrReader(whole(get_arguments.bytes()))).end, XdrState::kGood);
  XdrWriter get_results;
  post_op(get_results.u32(0)).u32(0xf);
  entries(get_results, 4);
  entries(get_results, 0);
  EXPECT_EQ(read_reply3(get, XdrReader(whole(get_results.bytes()))).end, XdrState::kGood);

  const Procedure3& set = *find_procedure3(kNfsAclProgram, 2);
  EXPECT_EQ(set.kind, OperationKind::kMetadataChange);
  XdrWriter set_arguments;
  set_arguments.opaque(kHandle).u32(1);
  entries(set_arguments, 3);
  entries(set_arguments, 3);
  const Call3 call = read_call3(set, XdrReader(whole(set_arguments.bytes())));
  EXPECT_EQ(call.end, XdrState::kGood);
  EXPECT_EQ(call.cost, (Cost{1, 0}));
  XdrWriter set_results;
  post_op(set_results.u32(0));
  EXPECT_EQ(read_reply3(set, XdrReader(whole(set_results.bytes()))).end, XdrState::kGood);
}

}  // namespace
}  // namespace weir::nfs
