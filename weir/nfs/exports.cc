// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/exports.h"

#include <algorithm>

namespace weir::nfs {
namespace {

// Without a slash at the end. Empty: it is not absolute, or has empty components, . or ..
std::string_view plain(std::string_view path) {
  if (path == "/") return path;
  if (path.ends_with('/')) path.remove_suffix(1);
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at + 1), path.size());
    const std::string_view component = path.substr(at, end - at);
    if (component[0] != '/' || component == "/" || component == "/." || component == "/..") {
      return {};
    }
    at = end;
  }
  return path;
}

bool is_above(std::string_view path, std::string_view other) {
  if (path == "/") return other != "/";
  return other.size() > path.size() && other.starts_with(path) && other[path.size()] == '/';
}

}  // namespace

Exports::Exports(const std::vector<serve::ExportHandle>& configured) {
  for (const serve::ExportHandle& one : configured) {
    configured_.push_back({one.prefix, export_name(one.name)});
  }
  std::ranges::stable_sort(configured_, [](const Configured& a, const Configured& b) {
    return a.prefix.size() > b.prefix.size();
  });
}

ExportName Exports::find(Bytes handle) const {
  for (const Configured& one : configured_) {
    if (begins_with(handle, one.prefix)) return one.name;
  }
  if (learned_.empty()) return {};
  const auto part = ExportPart::of(handle);
  if (!part) return {};
  const auto found = learned_.find(*part);
  return found == learned_.end() ? ExportName() : found->second.name;
}

Exports::Lesson Exports::lesson(std::string_view path, Bytes root) const {
  const auto part = ExportPart::of(root);
  if (!part) return Lesson::kUnknownForm;
  path = plain(path);
  if (path.empty() || !may_be_root(root)) return Lesson::kNotAnExport;
  if (const auto found = learned_.find(*part); found != learned_.end()) {
    return is_above(path, found->second.path) ? Lesson::kNew : Lesson::kKnown;
  }
  return learned_.size() < kLearnedMax ? Lesson::kNew : Lesson::kNotAnExport;
}

void Exports::learn(std::string_view path, Bytes root) {
  path = plain(path);
  learned_.insert_or_assign(*ExportPart::of(root), Learned{std::string(path), export_name(path)});
}

}  // namespace weir::nfs
