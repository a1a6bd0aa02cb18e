// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/mount.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/nfs/codec/xdr_writer.h"

namespace weir::nfs {
namespace {

TEST(Mount, LearnsThePathAndTheRoot) {
  CallHeader header;
  header.program = kMountProgram;
  header.version = 3;
  header.procedure = 1;
  EXPECT_TRUE(is_mount(header));
  header.procedure = 3;  // UMNT
  EXPECT_FALSE(is_mount(header));

  XdrWriter path;
  path.opaque("/export/home");
  EXPECT_EQ(mount_path(XdrReader(whole(path.bytes()))), "/export/home");
  XdrWriter reply;
  reply.u32(0).opaque(std::string(28, 'r')).u32(2).u32(1).u32(390003);
  const MountReply read = read_mount_reply(XdrReader(whole(reply.bytes())));
  EXPECT_EQ(read.end, XdrState::kGood);
  EXPECT_EQ(read.file_handle.size(), 28U);
  ASSERT_EQ(read.flavor_count, 2U);
  EXPECT_EQ(read.flavors[1], 390003U);
}

TEST(Mount, NothingIsLearnedFromWhatIsBroken) {
  XdrWriter path;
  path.opaque(std::string(1025, 'p'));
  EXPECT_EQ(mount_path(XdrReader(whole(path.bytes()))), std::nullopt);
  XdrWriter more;
  more.opaque("/a").u32(0);
  EXPECT_EQ(mount_path(XdrReader(whole(more.bytes()))), std::nullopt);

  XdrWriter refused;
  refused.u32(13);
  EXPECT_EQ(read_mount_reply(XdrReader(whole(refused.bytes()))).end, XdrState::kGood);
  XdrWriter handle;
  handle.u32(0).opaque(std::string(65, 'r')).u32(0);
  EXPECT_TRUE(read_mount_reply(XdrReader(whole(handle.bytes()))).file_handle.empty());
  XdrWriter flavors;
  flavors.u32(0).opaque("root").u32(17).zeros(17 * 4);
  EXPECT_TRUE(read_mount_reply(XdrReader(whole(flavors.bytes()))).file_handle.empty());
  XdrWriter cut;
  cut.u32(0).opaque("root").u32(2).u32(1);
  EXPECT_TRUE(read_mount_reply(XdrReader(whole(cut.bytes()))).file_handle.empty());
}

}  // namespace
}  // namespace weir::nfs
