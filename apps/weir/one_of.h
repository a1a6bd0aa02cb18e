// SPDX-License-Identifier: Apache-2.0
//
// Accepts one of a few words as the value of an option, and suggests the one that was probably
// meant instead of another.
//
//   command->add_option("--sort", sort, "Sort by ops or bytes")->check(one_of({"ops", "bytes"}));
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "weir/base/nearest.h"
#include "weir/base/quote.h"

namespace weir::app {

inline CLI::Validator one_of(std::vector<std::string_view> words) {
  std::string all = fmt::format("{{{}}}", fmt::join(words, ","));
  return {[words = std::move(words)](const std::string& text) -> std::string {
            if (std::find(words.begin(), words.end(), text) != words.end()) return {};
            const auto meant = nearest(text, words);
            return quote(text) + " is not valid; " +
                   (meant ? "did you mean " + quote(*meant) + "?"
                          : fmt::format("use {}", fmt::join(words, ", ")));
          },
          std::move(all)};
}

}  // namespace weir::app
