// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/conditions.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "weir/base/assert.h"
#include "weir/classify/job_glob.h"

namespace weir {
namespace {

bool comes_before(const JobId& a, const JobId& b) { return a.text() < b.text(); }

std::uint32_t number_of(const Attributes& attributes, Field field) {
  switch (field) {
    case Field::kOpcode:
      return attributes.opcode;
    case Field::kUid:
      return attributes.uid;
    case Field::kGid:
      return attributes.gid;
    case Field::kProjid:
      return attributes.projid;
    case Field::kNodemap:
      return attributes.nodemap;
    case Field::kJobid:
    case Field::kNid:
      break;
  }
  WEIR_ASSERT(false, static_cast<int>(field));
  return kUnknownId;
}

}  // namespace

void JobList::add(std::string_view item) {
  if (is_job_glob(item)) {
    globs_.emplace_back(item);
  } else if (item.size() <= JobId::kSizeMax) {
    literals_.emplace_back(item);
  }
}

void JobList::seal() {
  std::sort(literals_.begin(), literals_.end(), comes_before);
  literals_.erase(std::unique(literals_.begin(), literals_.end()), literals_.end());
}

bool JobList::matches(const JobId& id) const {
  // Most lists have a few items, which a scan of whole words finds faster than a search.
  constexpr std::size_t kScanned = 8;
  if (literals_.size() <= kScanned) {
    for (const JobId& literal : literals_) {
      if (literal == id) return true;
    }
  } else if (std::binary_search(literals_.begin(), literals_.end(), id, comes_before)) {
    return true;
  }
  for (const std::string& glob : globs_) {
    if (job_glob_matches(glob, id.text())) return true;
  }
  return false;
}

void NumberList::seal() {
  std::sort(numbers_.begin(), numbers_.end());
  numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
}

bool NumberList::matches(std::uint32_t number) const {
  return std::binary_search(numbers_.begin(), numbers_.end(), number);
}

bool FieldTest::matches(const Attributes& attributes) const {
  if (field == Field::kJobid) return std::get_if<JobList>(&list)->matches(attributes.job);
  if (field == Field::kNid) return std::get_if<NidList>(&list)->matches(attributes.nid);
  return std::get_if<NumberList>(&list)->matches(number_of(attributes, field));
}

void Conditions::add(Conjunction conjunction) {
  WEIR_ASSERT(!conjunction.empty());
  conjunctions_.push_back(std::move(conjunction));
}

}  // namespace weir
