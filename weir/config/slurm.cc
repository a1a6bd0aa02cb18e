// SPDX-License-Identifier: Apache-2.0
#include "weir/config/slurm.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weir/base/job_id.h"
#include "weir/base/quote.h"

namespace weir::config {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kHolding = {"RUNNING", "COMPLETING", "SUSPENDED",
                                                      "STOPPED"};

tl::unexpected<Error> refuse_pattern(std::string_view pattern, std::string_view what) {
  return fail(
      std::errc::invalid_argument, "job pattern " + quote(pattern), what,
      "use a pattern with %j, %h or %H, such as %j.%u or %e.%H, or run weir job in a prolog");
}

tl::unexpected<Error> refuse_hosts(std::string_view text, std::string_view what) {
  return fail(std::errc::invalid_argument, "hosts " + quote(text), what,
              "expected a list such as n[1-3,7],login1");
}

std::string_view short_name(std::string_view host) { return host.substr(0, host.find('.')); }

// Numbers are plain in 22.05 and {"set": true, "number": N} from 23.02 on.
std::optional<std::uint64_t> number_of(const Json& job, const char* key) {
  const auto found = job.find(key);
  if (found == job.end()) return std::nullopt;
  if (found->is_number_unsigned()) return found->get<std::uint64_t>();
  if (!found->is_object()) return std::nullopt;
  const auto number = found->find("number");
  const auto set = found->find("set");
  if (set != found->end() && set->is_boolean() && !set->get<bool>()) return std::nullopt;
  if (number == found->end() || !number->is_number_unsigned()) return std::nullopt;
  return number->get<std::uint64_t>();
}

// A word in 22.05, an array of them from 23.02 on.
bool holds_nodes(const Json& job) {
  const auto found = job.find("job_state");
  if (found == job.end()) return false;
  const auto counts = [](const Json& word) {
    return word.is_string() && std::find(kHolding.begin(), kHolding.end(),
                                         word.get_ref<const std::string&>()) != kHolding.end();
  };
  if (found->is_string()) return counts(*found);
  return found->is_array() && std::any_of(found->begin(), found->end(), counts);
}

// The hosts of a job: at the top level, or in job_resources as a string or, since 24.05, in
// an object.
std::string hosts_of(const Json& job) {
  const auto word = [](const Json& at, const char* key) -> const Json* {
    const auto found = at.find(key);
    return found == at.end() ? nullptr : &*found;
  };
  const Json* hosts = word(job, "nodes");
  if (hosts == nullptr || !hosts->is_string() || hosts->get_ref<const std::string&>().empty()) {
    const Json* const resources = word(job, "job_resources");
    hosts = resources != nullptr && resources->is_object() ? word(*resources, "nodes") : nullptr;
    if (hosts != nullptr && hosts->is_object()) hosts = word(*hosts, "list");
  }
  return hosts != nullptr && hosts->is_string() ? hosts->get<std::string>() : std::string();
}

// Adds "1-3" or "07"; numbers keep their width.
Result<void> add_range(std::string_view range, const std::vector<std::string>& heads,
                       std::size_t most, std::vector<std::string>& to) {
  const std::size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
  std::uint64_t from = 0;
  std::uint64_t until = 0;
  const auto number = [](std::string_view text, std::uint64_t& value) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size();
  };
  if (!number(low, from) || !number(high, until) || until < from) {
    return refuse_hosts(range, "is not a range of numbers");
  }
  const std::size_t room = most > to.size() ? most - to.size() : 0;
  if (until - from >= room / std::max<std::size_t>(heads.size(), 1)) {
    return refuse_hosts(range, "has too many hosts");
  }
  for (const std::string& head : heads) {
    for (std::uint64_t i = from; i <= until; ++i) {
      to.push_back(fmt::format("{}{:0{}}", head, i, low.size()));
    }
  }
  return {};
}

// Adds one element of a list, with any number of brackets.
Result<void> add_hosts(std::string_view one, std::size_t most, std::vector<std::string>& to) {
  std::vector<std::string> heads = {""};
  while (!one.empty()) {
    const std::size_t open = one.find('[');
    const std::string_view plain = one.substr(0, open);
    if (plain.find(']') != std::string_view::npos) return refuse_hosts(one, "has an unmatched ]");
    for (std::string& head : heads) head += plain;
    if (open == std::string_view::npos) break;
    const std::size_t close = one.find(']', open);
    if (close == std::string_view::npos) return refuse_hosts(one, "has an unmatched [");
    std::vector<std::string> next;
    std::string_view ranges = one.substr(open + 1, close - open - 1);
    do {
      const std::string_view range = ranges.substr(0, ranges.find(','));
      if (auto added = add_range(range, heads, most, next); !added) return added;
      ranges.remove_prefix(std::min(ranges.size(), range.size() + 1));
    } while (!ranges.empty());
    heads = std::move(next);
    one.remove_prefix(close + 1);
  }
  to.insert(to.end(), heads.begin(), heads.end());
  return {};
}

}  // namespace

Result<std::vector<std::string>> expand_hosts(std::string_view text, std::size_t most) {
  std::vector<std::string> hosts;
  while (!text.empty()) {
    // Up to a comma that is not in brackets.
    std::size_t size = 0;
    for (bool inside = false; size < text.size() && (inside || text[size] != ','); ++size) {
      if (text[size] == '[') inside = true;
      if (text[size] == ']') inside = false;
    }
    if (size == 0) return refuse_hosts(text, "has an empty name");
    if (auto added = add_hosts(text.substr(0, size), most, hosts); !added) {
      return tl::unexpected(added.error());
    }
    if (hosts.size() > most) return refuse_hosts(text, "has too many hosts");
    text.remove_prefix(std::min(text.size(), size + 1));
  }
  return hosts;
}

// ---- patterns ----

Result<JobPattern> JobPattern::parse(std::string_view text) {
  JobPattern pattern;
  bool has_owner = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (text[i] == ' ') continue;  // spaces are dropped, as on a client
      if (pattern.pieces_.empty() || pattern.pieces_.back().code != Code::kText) {
        pattern.pieces_.push_back({});
      }
      pattern.pieces_.back().text += text[i];
      continue;
    }
    Piece piece{.code = Code::kAny, .text = {}, .most = JobId::kSizeMax};
    if (i + 1 < text.size() && text[i + 1] == '.') {
      const auto read = std::from_chars(text.data() + i + 2, text.data() + text.size(), piece.most);
      if (read.ec != std::errc() || piece.most == 0) {
        return refuse_pattern(text, "has no number after %.");
      }
      piece.most = std::min(piece.most, JobId::kSizeMax);
      i = static_cast<std::size_t>(read.ptr - text.data()) - 1;
    }
    if (++i >= text.size()) return refuse_pattern(text, "ends in a %");
    constexpr std::string_view kCodes = "juhHegp";
    constexpr std::array kMeanings = {Code::kJob, Code::kUser, Code::kHost, Code::kHost,
                                      Code::kAny, Code::kAny,  Code::kAny};
    const std::size_t code = kCodes.find(text[i]);
    if (code == std::string_view::npos) {
      return refuse_pattern(text, fmt::format("has the unknown code %{}", text[i]));
    }
    piece.code = kMeanings[code];
    has_owner = has_owner || piece.code == Code::kJob || piece.code == Code::kHost;
    pattern.is_known_ =
        pattern.is_known_ && (piece.code == Code::kJob || piece.code == Code::kUser);
    pattern.pieces_.push_back(std::move(piece));
  }
  if (!has_owner) return refuse_pattern(text, "has neither %j nor a host code");
  return pattern;
}

Result<JobPattern> JobPattern::parse_known(std::string_view text) {
  auto pattern = parse(text);
  if (pattern && !pattern->is_known()) {
    return fail(std::errc::invalid_argument, "job pattern " + quote(text),
                "has a code that has no meaning in Slurm", "use %j and %u only");
  }
  return pattern;
}

// ---- jobs ----

Result<SlurmJobs> SlurmJobs::parse(std::string_view json) {
  const Json all = Json::parse(json, nullptr, false);
  const auto list = all.is_object() ? all.find("jobs") : all.end();
  if (!all.is_object() || list == all.end() || !list->is_array()) {
    return fail(std::errc::invalid_argument, "squeue --json", "not a list of jobs",
                "check that 'squeue --json' works; it needs Slurm 21.08 or later");
  }
  std::map<std::uint64_t, Job> jobs;
  std::vector<std::pair<std::uint64_t, std::string>> hosts;
  for (const Json& job : *list) {
    if (!job.is_object() || !holds_nodes(job)) continue;
    const auto number = number_of(job, "job_id");
    const auto nodes = number_of(job, "node_count");
    if (!number || !nodes || *nodes == 0) continue;
    const std::uint64_t leader = number_of(job, "het_job_id").value_or(0);
    Job& sum = jobs[leader == 0 ? *number : leader];
    sum.number = leader == 0 ? *number : leader;
    sum.user = number_of(job, "user_id").value_or(0);
    sum.nodes += *nodes;
    hosts.emplace_back(sum.number, hosts_of(job));
  }
  SlurmJobs read;
  read.jobs_.reserve(jobs.size());
  for (const auto& [number, job] : jobs) read.jobs_.push_back(job);
  for (const auto& [number, names] : hosts) {
    const auto at = std::distance(jobs.begin(), jobs.find(number));
    read.place(names, static_cast<std::size_t>(at));
  }
  return read;
}

// An invalid list leaves its hosts unknown.
void SlurmJobs::place(std::string_view hosts, std::size_t job) {
  const auto names = expand_hosts(hosts, kHostsMax);
  if (!names || hosts_.size() + names->size() > kHostsMax) return;
  for (const std::string& name : *names) {
    const auto [at, is_new] = hosts_.try_emplace(std::string(short_name(name)), Place{job, false});
    if (!is_new && at->second.job != job) at->second.is_shared = true;
  }
}

// Parses an id with the pattern: the first way in which all of it matches and its job is known.
class SlurmJobs::Matcher {
 public:
  Matcher(const SlurmJobs& jobs, const JobPattern& pattern) : jobs_(jobs), pattern_(pattern) {}

  // None if the id does not match.
  std::optional<Place> owner(std::string_view id) {
    owner_.reset();
    return fits(0, id) ? owner_ : std::nullopt;
  }

 private:
  bool fits(std::size_t piece, std::string_view rest) {
    if (piece == pattern_.pieces().size()) return rest.empty() && owner_.has_value();
    const JobPattern::Piece& wanted = pattern_.pieces()[piece];
    if (wanted.code == JobPattern::Code::kText) {
      return rest.starts_with(wanted.text) && fits(piece + 1, rest.substr(wanted.text.size()));
    }
    const std::optional<Place> before = owner_;
    for (std::size_t size = std::min(wanted.most, rest.size()); size > 0; --size) {
      if (names(wanted.code, rest.substr(0, size)) && fits(piece + 1, rest.substr(size))) {
        return true;
      }
      owner_ = before;
    }
    return false;
  }

  // Whether the text can be the value of the code; sets the owner.
  bool names(JobPattern::Code code, std::string_view text) {
    if (code == JobPattern::Code::kHost) {
      const auto found = jobs_.hosts_.find(short_name(text));
      if (found == jobs_.hosts_.end()) return false;
      if (!owner_ || owner_->is_shared) owner_ = found->second;
      return true;
    }
    if (code == JobPattern::Code::kAny) return true;
    std::uint64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return false;
    if (code == JobPattern::Code::kUser) return true;
    const auto found =
        std::lower_bound(jobs_.jobs_.begin(), jobs_.jobs_.end(), number,
                         [](const Job& job, std::uint64_t wanted) { return job.number < wanted; });
    if (found == jobs_.jobs_.end() || found->number != number) return false;
    owner_ = Place{static_cast<std::size_t>(found - jobs_.jobs_.begin()), false};
    return true;
  }

  const SlurmJobs& jobs_;
  const JobPattern& pattern_;
  std::optional<Place> owner_;
};

std::string SlurmJobs::id_of(const Job& job, const JobPattern& pattern) {
  std::string id;
  for (const JobPattern::Piece& piece : pattern.pieces()) {
    id += piece.code == JobPattern::Code::kText  ? piece.text
          : piece.code == JobPattern::Code::kJob ? std::to_string(job.number).substr(0, piece.most)
                                                 : std::to_string(job.user).substr(0, piece.most);
  }
  id.resize(std::min(id.size(), JobId::kSizeMax));
  return id;
}

std::vector<SlurmJobs::HostJob> SlurmJobs::hosts(const JobPattern& pattern) const {
  std::vector<HostJob> all;
  for (const auto& [host, place] : hosts_) {
    if (!place.is_shared) all.push_back({host, id_of(jobs_[place.job], pattern)});
  }
  return all;
}

SlurmJobs::Sizes SlurmJobs::sizes(const JobPattern& pattern,
                                  const std::vector<std::string>& seen) const {
  Sizes sizes;
  std::map<std::string, std::uint64_t> sums;
  if (pattern.is_known()) {
    for (const Job& job : jobs_) {
      sums[id_of(job, pattern)] += job.nodes;
    }
  } else {
    Matcher matcher(*this, pattern);
    std::map<std::string, std::size_t> owners;
    std::vector<std::uint64_t> ids(jobs_.size());
    for (const std::string& id : seen) {
      const auto owner = matcher.owner(id);
      if (!owner || owner->is_shared) {
        ++(owner ? sizes.shared : sizes.unknown);
        sums[id] = 1;
      } else if (owners.try_emplace(id, owner->job).second) {
        ++ids[owner->job];
      }
    }
    for (const auto& [id, job] : owners) {
      sums[id] = std::max<std::uint64_t>(jobs_[job].nodes / ids[job], 1);
    }
  }
  sizes.jobs.reserve(sums.size());
  for (const auto& [job, nodes] : sums) sizes.jobs.push_back({job, nodes});
  return sizes;
}

// ---- accounts ----

// Lines such as " physics|alice|10", indented by the depth of the account.
Result<std::map<std::string, std::uint64_t, std::less<>>> parse_account_shares(
    std::string_view text) {
  std::map<std::string, std::uint64_t, std::less<>> shares;
  const auto next = [](std::string_view& line) {
    const std::size_t end = std::min(line.find('|'), line.size());
    std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    return word;
  };
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string_view account = next(line);
    const std::string_view user = next(line);
    const std::string_view number = next(line);
    std::uint64_t raw = 0;
    const auto read = std::from_chars(number.data(), number.data() + number.size(), raw);
    const bool is_number = read.ec == std::errc() && read.ptr == number.data() + number.size();
    if (account.empty() || !is_number) continue;
    std::string name(account);
    if (!user.empty()) name.append("/").append(user);
    shares[name] = raw;
  }
  if (shares.empty()) {
    return fail(std::errc::invalid_argument, "sshare", "lists no accounts",
                "check that 'sshare -a' works; it needs accounting in slurm.conf");
  }
  return shares;
}

// ---- files ----

Result<std::vector<JobNodes>> parse_nodes(std::string_view text) {
  std::map<std::string, std::uint64_t> sizes;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty() || line.front() == '#') continue;
    const std::size_t blank = line.rfind(' ');
    std::uint64_t nodes = 0;
    const char* const end = line.data() + line.size();
    const bool has_both = blank != std::string_view::npos && blank > 0;
    const auto read = has_both ? std::from_chars(line.data() + blank + 1, end, nodes)
                               : std::from_chars_result{line.data(), std::errc::invalid_argument};
    if (read.ec != std::errc() || read.ptr != end || nodes == 0) {
      return fail(std::errc::invalid_argument, fmt::format("line {}", number),
                  quote(line) + " is not a job and its number of nodes",
                  "expected JOB NODES, such as dd.0 4");
    }
    sizes[std::string(line.substr(0, blank))] = nodes;
  }
  std::vector<JobNodes> list;
  list.reserve(sizes.size());
  for (const auto& [job, nodes] : sizes) list.push_back({job, nodes});
  return list;
}

}  // namespace weir::config
