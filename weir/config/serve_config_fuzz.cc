// SPDX-License-Identifier: Apache-2.0
//
// No text may crash the parser of configuration files. An error names its position in the file; an
// accepted file can be planned against itself, against an empty one and back, and no change is
// planned if nothing was edited.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/assert.h"
#include "weir/classify/rule_spec.h"
#include "weir/config/serve_config.h"
#include "weir/config/serve_reload.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace weir;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto options = config::parse_serve_config(text, "f");
  if (!options) {
    WEIR_ASSERT(!options.error().empty());
    for (const Error& error : options.error()) {
      WEIR_ASSERT(error.where.starts_with("f") && !error.what.empty());
    }
    return 0;
  }
  [[maybe_unused]] const auto checked = serve::check(*options);
  WEIR_ASSERT(config::plan_reload(*options, *options) == config::ServeReload{});
  const bool is_default = *options == serve::ServeOptions{};
  WEIR_ASSERT(!is_default ||
              config::plan_reload(*options, serve::ServeOptions{}) == config::ServeReload{});
  for (const serve::ServiceOptions& service : options->services) {
    const auto started = rule_changes({}, service.rules);
    WEIR_ASSERT(started && started->size() == service.rules.size());
  }
  return 0;
}
