// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/file_handle.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::nfs {
namespace {

// Of hexadecimal digits.
std::string handle(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

Bytes as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::optional<ExportPart> part(const std::string& hex) {
  return ExportPart::of(as_bytes(handle(hex)));
}

TEST(FileHandle, OfGaneshaHasTheNumberOfItsExport) {
  // NFS-Ganesha 4.3, Export_Id 7: the root, a folder and an export with another number.
  const auto root = part("430000071244e007a73736e6216101372ba7005a620fed00");
  ASSERT_TRUE(root);
  EXPECT_EQ(root->bytes().size(), 4U);
  EXPECT_EQ(part("430000071244e007a73736e6216101462ba700ed55969600"), root);
  EXPECT_NE(part("430000081244e007a73736e6216101372ba7005a620fed00"), root);
}

TEST(FileHandle, OfLinuxHasTheIdOfItsFileSystem) {
  struct Case {
    std::string root, file, other;
  };
  for (const Case& one : {
           Case{"0100010000000000", "01000101000000000c000000deadbeef", "0100010001000000"},
           Case{"01000000"
                "0801000002000000",
                "01000002"
                "0801000002000000"
                "0c000000deadbeef",
                "01000000"
                "0801000003000000"},
           Case{"01000700" + std::string(46, '1') + "10",
                "01000781" + std::string(46, '1') +
                    "10"
                    "0c000000deadbeef",
                "01000700" + std::string(46, '1') + "11"},
       }) {
    const auto root = part(one.root);
    ASSERT_TRUE(root) << one.root;
    EXPECT_EQ(part(one.file), root) << one.file;
    EXPECT_EQ(part(one.file)->hash(), root->hash());
    EXPECT_NE(part(one.other), root) << one.other;
    EXPECT_TRUE(may_be_root(as_bytes(handle(one.root))));
    EXPECT_FALSE(may_be_root(as_bytes(handle(one.file)))) << "a folder that was mounted";
  }
}

TEST(FileHandle, BeginsWithWhatItsExportHasInCommon) {
  const auto begins = [](const std::string& of, const std::string& prefix) {
    const std::string bytes = handle(of);
    const std::string start = handle(prefix);
    return begins_with(as_bytes(bytes), as_bytes(start));
  };
  EXPECT_TRUE(begins("430000071244", "43000007"));
  EXPECT_TRUE(begins("43000007", "43000007"));
  EXPECT_TRUE(begins("43000007", ""));
  EXPECT_FALSE(begins("430000", "43000007"));
  EXPECT_FALSE(begins("43000107", "43000007"));
  EXPECT_TRUE(begins("01000181aabbccdd0c00", "01000100aabbccdd")) << "a file on Linux";
  EXPECT_FALSE(begins("01000181aabbccde0c00", "01000100aabbccdd"));
  EXPECT_FALSE(begins("ff000181aabbccdd0c00", "ff000100aabbccdd")) << "of another form";
}

TEST(FileHandle, OfOtherFormsIsNotGuessed) {
  for (const char* hex : {"", "01", "010001", "0100010000", "0101010000000000", "0100080000000000",
                          "0200010000000000", "430000", "43000007", "00ff"}) {
    EXPECT_FALSE(part(hex)) << hex;
    EXPECT_FALSE(may_be_root(as_bytes(handle(hex)))) << hex;
  }
}

}  // namespace
}  // namespace weir::nfs
