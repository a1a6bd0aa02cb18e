// SPDX-License-Identifier: Apache-2.0
//
// The conditions of a rule: one or more conjunctions, of which one must match; in each,
// tests of single fields, which must all match; in each test a list, of which one item must
// match.
//
//   jobid={dd.* cp.0}&opcode={ost_write},uid={500}&export={/home}
//
// The lists are prepared when they are parsed: literal names and numbers are sorted, NIDs are
// masks. So matching does not allocate and takes a few nanoseconds per test. command.h parses
// commands and creates conditions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/classify/attributes.h"
#include "weir/classify/nid.h"

namespace weir {

// Names: literals and patterns.
template <class Name>
class NameList {
 public:
  // REQUIRES: is_job_glob(pattern).
  void add_pattern(std::string_view pattern) { globs_.emplace_back(pattern); }
  void add(const Name& literal) { literals_.push_back(literal); }
  // Call once, after the last add().
  void seal();
  bool matches(const Name& name) const;

  const std::vector<Name>& literals() const { return literals_; }
  bool has_globs() const { return !globs_.empty(); }

 private:
  std::vector<Name> literals_;      // sorted by their bytes
  std::vector<std::string> globs_;  // with at least one *
};
using JobList = NameList<JobId>;
using ExportList = NameList<ExportName>;
extern template class NameList<JobId>;
extern template class NameList<ExportName>;

// Numbers: opcodes, ids of users, groups, projects and nodemaps.
class NumberList {
 public:
  void add(std::uint32_t number) { numbers_.push_back(number); }
  // Call once, after the last add().
  void seal();
  bool matches(std::uint32_t number) const;

 private:
  std::vector<std::uint32_t> numbers_;  // sorted
};

struct FieldTest {
  Field field;
  // Its position in the text of the conditions, in bytes.
  std::uint16_t text_at;
  std::uint16_t text_size;
  std::variant<JobList, NidList, NumberList, ExportList> list;

  bool matches(const Attributes& attributes) const;
};

class Conditions {
 public:
  using Conjunction = std::vector<FieldTest>;

  // The fields that are tested, without those of Lustre, which belong to the type of the policy.
  FieldSet own_fields() const;

  // REQUIRES: the conjunction is not empty.
  void add(Conjunction conjunction);

  // False if there are no conjunctions.
  bool matches(const Attributes& attributes) const {
    for (const Conjunction& conjunction : conjunctions_) {
      if (holds(conjunction, attributes)) return true;
    }
    return false;
  }

  const std::vector<Conjunction>& conjunctions() const { return conjunctions_; }

 private:
  static bool holds(const Conjunction& conjunction, const Attributes& attributes) {
    for (const FieldTest& test : conjunction) {
      if (!test.matches(attributes)) return false;
    }
    return true;
  }

  std::vector<Conjunction> conjunctions_;
};

}  // namespace weir
