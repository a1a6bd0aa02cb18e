// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/config/serve_config_for_tests.h"
#include "weir/host/files.h"

namespace weir::config {
namespace {

// The file, the manual and the example agree.
using serve::ServeOptions;

std::string document(const std::string& name) {
  const auto text = host::read_file(WEIR_DOCS "/" + name);
  EXPECT_TRUE(text) << text.error().message();
  return text ? *text : "";
}

// "table.key" of each line "key = ..." below a "[table]", including commented ones.
std::set<std::string> keys_of_example(const std::string& text) {
  std::set<std::string> keys;
  std::string table;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with('#')) line.erase(0, 1);
    if (line.starts_with('[')) {
      table = line.substr(line.find_first_not_of('['));
      table.erase(table.find(']'));
    } else if (!line.empty() && line[0] != ' ' && line.find(" = ") != std::string::npos) {
      keys.insert(table + "." + line.substr(0, line.find(' ')));
    }
  }
  return keys;
}

// "table.key" of each "=item B<key> = ..." below a "=head1 [table]".
std::set<std::string> keys_of_manual(const std::string& text) {
  std::set<std::string> keys;
  std::string table;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("=head1")) {
      const std::size_t name = line.find_first_not_of('[', 7);
      table = line[7] == '[' ? line.substr(name, line.find(']') - name) : "";
    } else if (line.starts_with("=item B<") && !table.empty()) {
      keys.insert(table + "." + line.substr(8, line.find('>') - 8));
    }
  }
  return keys;
}

std::set<std::string> keys_of_program() {
  std::set<std::string> keys;
  for (const ServeConfigKey& key : serve_config_keys()) {
    keys.insert(std::string(key.table) + "." + std::string(key.name));
  }
  return keys;
}

TEST(ServeConfigDocuments, TheManualAndTheExampleHaveEveryKeyAndNoOther) {
  EXPECT_EQ(keys_of_manual(document("man/weir.conf.5.pod")), keys_of_program());
  EXPECT_EQ(keys_of_example(document("weir.conf.example")), keys_of_program());
}

TEST(ServeConfigDocuments, TheComparisonFindsAKeyThatIsMissing) {
  std::string manual = document("man/weir.conf.5.pod");
  manual.replace(manual.find("=item B<drain_timeout>"), 8, "=item X<");
  EXPECT_NE(keys_of_manual(manual), keys_of_program());
  std::string example = document("weir.conf.example");
  example.replace(example.find("#store ="), 8, "# store =");
  EXPECT_NE(keys_of_example(example), keys_of_program());
}

TEST(ServeConfigDocuments, TheExampleGivesTheDefaults) {
  ServeOptions options = parsed(document("weir.conf.example"));
  EXPECT_EQ(options.services, std::vector<serve::ServiceOptions>{{}});
  options.services.clear();
  EXPECT_EQ(options, ServeOptions{});
}

TEST(ServeConfigDocuments, TheExampleWithAllItsExamplesCanBeServed) {
  std::string text = document("weir.conf.example");
  for (std::size_t at = text.find("\n#"); at != std::string::npos; at = text.find("\n#", at + 1)) {
    if (at + 2 < text.size() && text[at + 2] != ' ' && text[at + 2] != '\n') text.erase(at + 1, 1);
  }
  const ServeOptions options = parsed(text);
  EXPECT_TRUE(serve::check(options));
  ASSERT_EQ(options.exports.size(), 1U);
  EXPECT_EQ(options.exports[0].blocks, BlockSizes{});
  EXPECT_EQ(options.exports[0].service, serve::kDefaultService);
  EXPECT_EQ(options.services[0].rules.size(), 2U);
  EXPECT_EQ(options.jobs.size(), 2U);
}

}  // namespace
}  // namespace weir::config
