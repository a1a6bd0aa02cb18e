// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/config/serve_config_for_tests.h"

namespace weir::config {
namespace {

TEST(ServeConfig, RefusesExportsThatDoNotGoTogether) {
  EXPECT_EQ(mistakes_of("[[export]]\n"),
            (std::vector<std::string>{
                "f:1:1: export: name is missing; '' serves clients that name no export",
                "f:1:1: export: store is missing; such as 'file:/srv/scratch.img' or "
                "'memory:1GiB'"}));
  EXPECT_EQ(refused("service = \"fast\"", "service = \"fats\""),
            "f:46:11: export 'e': service 'fats' does not exist; did you mean fast?");
  EXPECT_EQ(
      refused("service = \"fast\"", "service = \"nothing\""),
      "f:46:11: export 'e': service 'nothing' does not exist; add a [[service]] of that name");
  EXPECT_EQ(refused("block_min = 512", "block_min = 513"),
            "f:47:13: export 'e': block_min conflicts with the other block sizes; "
            "block_min is a power of 2 up to 64KiB, block_preferred a power of 2 of at least "
            "512B and block_min, block_max a multiple of block_min from block_preferred to 64MiB");
  EXPECT_EQ(refused("block_max = \"1MiB\"", "block_max = \"65MiB\""),
            "f:49:13: export 'e': block_max must be from 1B to 64MiB");
  EXPECT_EQ(refused("connection_memory = \"128MiB\"", "connection_memory = \"512KiB\""),
            "f:49:13: export 'e': block_max is 1MiB, which exceeds the server's connection_memory "
            "of 512KiB; "
            "lower block_max or raise connection_memory");
  EXPECT_EQ(refused("e.img\"", "e.img,size=1GiB\""),
            "f:42:8: export 'e': size is already given in store; remove one of them");
  EXPECT_EQ(refused("file:/srv/e.img", "device:/dev/sda"),
            "f:42:8: export 'e': size cannot be set for a device; remove it");
  EXPECT_EQ(
      refused("description = \"an export\"", "description = \"" + std::string(256, 'x') + '"'),
      "f:45:15: export 'e': description is 256 bytes long; the maximum is 255");
  EXPECT_EQ(mistakes_of("[[export]]\nname = ''\nstore = 'memory:1MiB'\nsize = '1MiB'\n"
                        "direct = true\n[[export]]\nname = ''\nstore = 'memory:1MiB'\n"),
            (std::vector<std::string>{"f:4:8: export '': size is already given in store; remove it",
                                      "f:5:10: export '': direct has no effect for memory",
                                      "f:7:8: export '': name is used twice"}));
}

}  // namespace
}  // namespace weir::config
