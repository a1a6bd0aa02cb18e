// SPDX-License-Identifier: Apache-2.0
//
// The key of a queue or class in as few words as its fields need: four for a job id alone,
// sixteen for all fields. A table of a hundred thousand jobs stores 32 bytes for each key instead
// of 80.
//
//   PackedKey key(request.attributes, fields);
//   key.hash();   key == stored_words;   PackedKey::unpack(fields, stored_words)
//
// The key does not contain its FieldSet: code that stores packed keys also stores the FieldSet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weir/base/hash.h"
#include "weir/classify/attributes.h"

namespace weir {

class PackedKey {
 public:
  static constexpr std::size_t kWordsMax = 16;

  static std::size_t words_of(FieldSet fields) {
    const unsigned texts = fields.has(Field::kJobid) + fields.has(Field::kExport);
    const unsigned addresses = has_address(fields);
    return 4U * texts + 3U * addresses + (fields.size() - texts - addresses);
  }

  PackedKey(const Attributes& attributes, FieldSet fields);

  const std::uint64_t* data() const { return words_.data(); }
  std::size_t size() const { return size_; }
  std::uint64_t hash() const {
    std::uint64_t hash = size_;
    for (std::size_t i = 0; i < size_; i += 2) {
      hash = hash_words(words_[i] ^ hash, words_[i + 1] + hash);
    }
    return hash;
  }
  bool equals(const std::uint64_t* words) const {
    return std::memcmp(words_.data(), words, size_ * sizeof(std::uint64_t)) == 0;
  }

  // The attributes it was made from; other fields are zero or empty.
  static Attributes unpack(FieldSet fields, const std::uint64_t* words);

 private:
  // A whole one, or its subnet.
  static bool has_address(FieldSet fields) {
    return fields.has(Field::kNid) || fields.has(Field::kSubnet);
  }

  std::array<std::uint64_t, kWordsMax> words_;  // one past an odd size is zero
  std::size_t size_ = 0;
};

}  // namespace weir
