// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/exports.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::nfs {
namespace {

using Lesson = Exports::Lesson;

// A file of NFS-Ganesha.
std::string handle(unsigned number, const std::string& file = "root") {
  return std::string("\x43\0", 2) + static_cast<char>(number >> 8) + static_cast<char>(number) +
         static_cast<char>(file.size()) + file;
}
Bytes as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

serve::ExportHandle configured(const std::string& name, const std::string& prefix) {
  const Bytes bytes = as_bytes(prefix);
  return {name, {bytes.begin(), bytes.end()}};
}

std::string name_of(const Exports& exports, const std::string& file) {
  return std::string(exports.find(as_bytes(file)).text());
}

Lesson learn(Exports& exports, std::string_view path, const std::string& root) {
  const Lesson lesson = exports.lesson(path, as_bytes(root));
  if (lesson == Lesson::kNew) exports.learn(path, as_bytes(root));
  return lesson;
}

TEST(Exports, AreLearnedFromTheirRoots) {
  Exports exports({});
  EXPECT_TRUE(exports.empty());
  EXPECT_EQ(learn(exports, "/home", handle(7)), Lesson::kNew);
  EXPECT_EQ(learn(exports, "/home", handle(7)), Lesson::kKnown);
  EXPECT_EQ(learn(exports, "/srv/data/", handle(8)), Lesson::kNew);
  EXPECT_EQ(name_of(exports, handle(7, "file")), "/home");
  EXPECT_EQ(name_of(exports, handle(8, "file")), "/srv/data");
  EXPECT_EQ(name_of(exports, handle(9, "file")), "");
  EXPECT_EQ(name_of(exports, ""), "");
}

TEST(Exports, HaveTheNameOfTheHighestFolderThatIsMounted) {
  Exports exports({});
  EXPECT_EQ(learn(exports, "/home/alice", handle(7)), Lesson::kNew);
  EXPECT_EQ(learn(exports, "/homes", handle(7)), Lesson::kKnown) << "another path to it";
  EXPECT_EQ(name_of(exports, handle(7)), "/home/alice");
  EXPECT_EQ(learn(exports, "/home", handle(7)), Lesson::kNew);
  EXPECT_EQ(learn(exports, "/home/bob", handle(7)), Lesson::kKnown);
  EXPECT_EQ(name_of(exports, handle(7)), "/home");
  EXPECT_EQ(learn(exports, "/", handle(7)), Lesson::kNew);
  EXPECT_EQ(name_of(exports, handle(7)), "/");
}

TEST(Exports, AreNotNamedByAPathThatAClientMadeUp) {
  Exports exports({});
  for (const char* path : {"", "home", "/home/../scratch", "/./home", "//home", "/home//", "/.."}) {
    EXPECT_EQ(learn(exports, path, handle(7)), Lesson::kNotAnExport) << path;
  }
  const std::string folder("\x01\0\x01\x81\0\0\0\0inode", 13);  // of Linux
  EXPECT_EQ(learn(exports, "/home/alice", folder), Lesson::kNotAnExport);
  EXPECT_EQ(learn(exports, "/home", "an unknown form"), Lesson::kUnknownForm);
  EXPECT_TRUE(exports.empty());
}

TEST(Exports, ThatAreConfiguredCountFirst) {
  Exports exports({configured("all", handle(7).substr(0, 1)),
                   configured("home", handle(7).substr(0, 4)), configured("", "x")});
  EXPECT_FALSE(exports.empty());
  learn(exports, "/srv/home", handle(7));
  EXPECT_EQ(name_of(exports, handle(7, "file")), "home");
  EXPECT_EQ(name_of(exports, handle(8, "file")), "all");
  EXPECT_EQ(name_of(exports, "y"), "");
}

TEST(Exports, AreBounded) {
  Exports exports({});
  for (unsigned i = 0; i < Exports::kLearnedMax; ++i) {
    EXPECT_EQ(learn(exports, "/e" + std::to_string(i), handle(i)), Lesson::kNew);
  }
  EXPECT_EQ(learn(exports, "/more", handle(Exports::kLearnedMax)), Lesson::kNotAnExport);
  EXPECT_EQ(name_of(exports, handle(Exports::kLearnedMax - 1)), "/e4095");
}

}  // namespace
}  // namespace weir::nfs
