// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/conditions.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "weir/base/assert.h"
#include "weir/classify/job_glob.h"

namespace weir {
namespace {

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
    case Field::kExport:
    case Field::kSubnet:
      break;
  }
  WEIR_ASSERT(false, static_cast<int>(field));
  return kUnknownId;
}

}  // namespace

template <class Name>
void NameList<Name>::seal() {
  std::sort(literals_.begin(), literals_.end());
  literals_.erase(std::unique(literals_.begin(), literals_.end()), literals_.end());
}

template <class Name>
bool NameList<Name>::matches(const Name& name) const {
  // Most lists have a few items, which a scan of whole words finds faster than a search.
  constexpr std::size_t kScanned = 8;
  if (literals_.size() <= kScanned) {
    for (const Name& literal : literals_) {
      if (literal == name) return true;
    }
  } else if (std::binary_search(literals_.begin(), literals_.end(), name)) {
    return true;
  }
  for (const std::string& glob : globs_) {
    if (job_glob_matches(glob, name.text())) return true;
  }
  return false;
}

template class NameList<JobId>;
template class NameList<ExportName>;

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
  if (field == Field::kExport) {
    return std::get_if<ExportList>(&list)->matches(attributes.export_name);
  }
  return std::get_if<NumberList>(&list)->matches(number_of(attributes, field));
}

FieldSet Conditions::own_fields() const {
  for (const Conjunction& conjunction : conjunctions_) {
    for (const FieldTest& test : conjunction) {
      if (test.field == Field::kExport) return {Field::kExport};
    }
  }
  return {};
}

void Conditions::add(Conjunction conjunction) {
  WEIR_ASSERT(!conjunction.empty());
  conjunctions_.push_back(std::move(conjunction));
}

}  // namespace weir
