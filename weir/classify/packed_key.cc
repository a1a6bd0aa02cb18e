// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/packed_key.h"

namespace weir {
namespace {

constexpr std::size_t kTextWords = sizeof(JobId) / sizeof(std::uint64_t);
static_assert(sizeof(ExportName) == sizeof(JobId));

// Calls visit(pointer to member) for each of these fields that is a number, in the order of Field.
template <class Visit>
void each_number(FieldSet fields, Visit visit) {
  if (fields.has(Field::kOpcode)) visit(&Attributes::opcode);
  if (fields.has(Field::kUid)) visit(&Attributes::uid);
  if (fields.has(Field::kGid)) visit(&Attributes::gid);
  if (fields.has(Field::kProjid)) visit(&Attributes::projid);
  if (fields.has(Field::kNodemap)) visit(&Attributes::nodemap);
}

}  // namespace

PackedKey::PackedKey(const Attributes& attributes, FieldSet fields) {
  if (fields.has(Field::kJobid)) {
    std::memcpy(words_.data(), &attributes.job, sizeof(JobId));
    size_ = kTextWords;
  }
  if (has_address(fields)) {
    const Nid nid =
        fields.has(Field::kNid) ? attributes.nid : attributes.nid.network(fields.subnet_length());
    words_[size_++] = nid.high;
    words_[size_++] = nid.low;
    words_[size_++] = std::uint64_t{nid.net_number} << 32 |
                      static_cast<std::uint64_t>(nid.net) << 8 |
                      static_cast<std::uint64_t>(nid.family);
  }
  each_number(fields, [&](auto number) { words_[size_++] = attributes.*number; });
  if (fields.has(Field::kExport)) {
    std::memcpy(&words_[size_], &attributes.export_name, sizeof(ExportName));
    size_ += kTextWords;
  }
  if (size_ < kWordsMax) words_[size_] = 0;
}

Attributes PackedKey::unpack(FieldSet fields, const std::uint64_t* words) {
  Attributes attributes = Attributes{}.only({});
  if (fields.has(Field::kJobid)) {
    std::memcpy(static_cast<void*>(&attributes.job), words, sizeof(JobId));
    words += kTextWords;
  }
  if (has_address(fields)) {
    attributes.nid.high = *words++;
    attributes.nid.low = *words++;
    attributes.nid.net_number = static_cast<std::uint32_t>(*words >> 32);
    attributes.nid.net = static_cast<NetType>(*words >> 8 & 0xFF);
    attributes.nid.family = static_cast<AddressFamily>(*words & 0xFF);
    ++words;
  }
  each_number(fields,
              [&](auto number) { attributes.*number = static_cast<std::uint32_t>(*words++); });
  if (fields.has(Field::kExport)) {
    std::memcpy(static_cast<void*>(&attributes.export_name), words, sizeof(ExportName));
  }
  return attributes;
}

}  // namespace weir
