// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/recording.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "weir/base/big_endian.h"
#include "weir/base/crc32c.h"
#include "weir/base/quote.h"
#include "weir/lustre/names.h"

namespace weir::lustre {
namespace {

constexpr std::string_view kMagic = "weir lustre recording ";
constexpr std::string_view kVersion = "1";
constexpr std::size_t kLineMax = 256;
// Small changes of queued and busy are one byte: 15 values each. The escape is outside of them.
constexpr std::int64_t kSmall = 7;
constexpr std::uint8_t kEscape = 0xff;
// A distance from index to index that does not fit beside the count.
constexpr std::uint64_t kFar = 3;
// What a round can name, so that sums cannot overflow.
constexpr std::uint64_t kCountMax = std::uint64_t{1} << 40;
constexpr std::int64_t kLengthMax = std::int64_t{1} << 36;  // 80 days

std::uint64_t zigzag(std::int64_t number) {
  return (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
}

std::int64_t unzigzag(std::uint64_t number) {
  return static_cast<std::int64_t>(number >> 1) ^ -static_cast<std::int64_t>(number & 1);
}

void put_to(std::string& text, std::uint64_t number) {
  for (; number >= 128; number >>= 7) text += static_cast<char>(number | 128);
  text += static_cast<char>(number);
}

std::int64_t count_of(std::uint64_t count) {
  return static_cast<std::int64_t>(std::min(count, kCountMax));
}

}  // namespace

// ---- writing ----

RecordingWriter::RecordingWriter(const RecordingHead& head, Instant start) : start_(start) {
  out_ = fmt::format("{}{}\nservice={} cpts={} depth={} started={} period={}\n", kMagic, kVersion,
                     head.service, head.cpts, head.depth, head.started_s, head.period.count());
}

void RecordingWriter::put(std::uint64_t number) { put_to(block_, number); }

void RecordingWriter::put_signed(std::int64_t number) { put(zigzag(number)); }

void RecordingWriter::set_size(const JobId& job, std::uint64_t nodes) {
  if (sizes_.size() >= kJobsMax) {
    std::erase_if(sizes_, [&](const auto& size) { return !jobs_.contains(size.first); });
  }
  const auto [size, is_new] = sizes_.try_emplace(job, nodes);
  if (!is_new && size->second == nodes) return;
  size->second = nodes;
  sized_.insert(job);
}

// Records of jobs that come, go, vanish, return, or have a new size.
void RecordingWriter::put_jobs(const RuleRound& round) {
  for (const JobCount& count : round.jobs) {
    auto found = jobs_.find(count.job);
    if (found == jobs_.end()) {
      if (jobs_.size() >= kJobsMax) {
        ++skipped_;
        continue;
      }
      auto index = static_cast<std::uint32_t>(jobs_.size());
      if (!free_.empty()) index = free_.extract(free_.begin()).value();
      found = jobs_.emplace(count.job, Job{.index = index}).first;
      const std::string_view id = count.job.text();
      put_idle();
      block_ += 'J';
      put(index);
      put(id.size());
      block_ += id;
      if (sizes_.contains(count.job)) sized_.insert(count.job);
    }
    Job& job = found->second;
    job.mark = rounds_;
    const std::uint64_t apart = std::max(job.cost, count.cost) - std::min(job.cost, count.cost);
    if (apart > job.cost / kCostParts) {
      job.cost = count.cost;
      put_idle();
      block_ += 'C';
      put(job.index);
      put(job.cost);
    }
    if (job.known == count.known) continue;
    job.known = count.known;
    put_idle();
    block_ += count.known ? 'P' : 'U';
    put(job.index);
  }
  for (auto each = jobs_.begin(); each != jobs_.end();) {
    if (each->second.mark == rounds_) {
      ++each;
      continue;
    }
    put_idle();
    block_ += 'D';
    put(each->second.index);
    free_.insert(each->second.index);
    each = jobs_.erase(each);
  }
  for (const JobId& job : std::exchange(sized_, {})) {
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) continue;
    put_idle();
    block_ += 'N';
    put(found->second.index);
    put(sizes_[job]);
  }
}

void RecordingWriter::add(const RuleRound& round, std::uint64_t rules) {
  ++rounds_;
  if (block_.empty()) block_at_ = at_;
  put_jobs(round);
  if (rules != rules_) {
    put_idle();
    rules_ = rules;
    block_ += 'F';
    put(rules);
  }
  served_.clear();
  for (const JobCount& count : round.jobs) {
    const auto found = jobs_.find(count.job);
    if (found == jobs_.end() || count.served == Tokens{0}) continue;
    served_.emplace_back(found->second.index, std::min(count.served.count(), kCountMax));
  }
  std::sort(served_.begin(), served_.end());
  const auto now = static_cast<std::int64_t>((round.at - start_) / kUnit);
  const std::int64_t length = std::clamp<std::int64_t>(
      now - static_cast<std::int64_t>(idle_ > 0 ? idle_at_ : at_), 1, kLengthMax);
  const bool is_still = std::all_of(glances_.begin(), glances_.end(), [&](const RuleGlance& seen) {
    return count_of(seen.queued) == queued_ && count_of(seen.busy) == busy_;
  });
  const bool is_same = count_of(round.queued) == queued_ && count_of(round.busy) == busy_;
  // Timers are never exact.
  const bool is_regular = length_ > 0 && std::abs(length - length_) <= length_ / 4;
  if (served_.empty() && is_same && is_still && is_regular && glances_.size() == glances_before_ &&
      round.served_all == Tokens{0}) {
    idle_at_ = (idle_ > 0 ? idle_at_ : at_) + static_cast<std::uint64_t>(length);
    glances_.clear();
    if (++idle_ >= kIdleMax) put_idle();
  } else {
    put_idle();
    block_ += 'R';
    put_signed(length - length_);
    length_ = length;
    at_ += static_cast<std::uint64_t>(length);
    put_served(round);
    put_glances();
  }
  const auto block_time = static_cast<std::uint64_t>(kBlockTime / kUnit);
  const std::uint64_t last = idle_ > 0 ? idle_at_ : at_;
  const bool is_due = !block_.empty() && last - block_at_ >= block_time;
  if (is_due || block_.size() >= kBlockSize) end_block();
}

void RecordingWriter::put_served(const RuleRound& round) {
  put_signed(count_of(round.queued) - queued_);
  put_signed(count_of(round.busy) - busy_);
  std::uint64_t sum = 0;
  for (const auto& [index, served] : served_) sum = std::min(sum + served, kCountMax);
  const std::int64_t beyond =
      round.served_all ? count_of(round.served_all->count()) - static_cast<std::int64_t>(sum) : 0;
  put(round.served_all ? zigzag(beyond) + 1 : 0);
  put(served_.size());
  std::uint32_t before = 0;
  for (const auto& [index, served] : served_) {
    const std::uint64_t distance = index - before;
    put((served - 1) << 2 | std::min(distance, kFar));
    if (distance >= kFar) put(distance - kFar);
    before = index;
  }
  queued_ = count_of(round.queued);
  busy_ = count_of(round.busy);
}

// Each as a change from the one before; the first from the round that they precede, which the
// reader knows by then.
void RecordingWriter::put_glances() {
  if (glances_.size() > RecordingReader::kGlancesMax) glances_.resize(RecordingReader::kGlancesMax);
  put(glances_.size());
  std::int64_t queued = queued_;
  std::int64_t busy = busy_;
  for (const RuleGlance& seen : glances_) {
    const std::int64_t more_queued = count_of(seen.queued) - queued;
    const std::int64_t more_busy = count_of(seen.busy) - busy;
    if (std::abs(more_queued) <= kSmall && std::abs(more_busy) <= kSmall) {
      block_ += static_cast<char>((more_queued + kSmall) * 16 + more_busy + kSmall);
    } else {
      block_ += static_cast<char>(kEscape);
      put_signed(more_queued);
      put_signed(more_busy);
    }
    queued = count_of(seen.queued);
    busy = count_of(seen.busy);
  }
  glances_before_ = glances_.size();
  glances_.clear();
}

void RecordingWriter::put_idle() {
  if (idle_ == 0) return;
  block_ += 'I';
  put(idle_);
  put_signed(static_cast<std::int64_t>(idle_at_ - at_) -
             static_cast<std::int64_t>(idle_) * length_);
  at_ = idle_at_;
  idle_ = 0;
}

void RecordingWriter::end_block() {
  put_idle();
  if (block_.empty()) return;
  std::string inside;
  put_to(inside, blocks_++);
  put_to(inside, block_at_);
  inside += block_;
  out_ += 'B';
  put_to(out_, inside.size());
  std::byte sum[4];
  store_be<std::uint32_t>(sum, crc32c(inside));
  out_.append(reinterpret_cast<const char*>(sum), sizeof sum);
  out_ += inside;
  block_.clear();
}

std::string RecordingWriter::take(Take what) {
  if (what == Take::kAll) end_block();
  taken_ += out_.size();
  return std::exchange(out_, {});
}

// ---- reading ----

Result<RecordingReader> RecordingReader::open(Source source, std::string where) {
  RecordingReader reader(std::move(source), std::move(where));
  if (auto done = reader.read_head(); !done) return tl::unexpected(done.error());
  return reader;
}

tl::unexpected<Error> RecordingReader::damaged(std::string_view what) const {
  return fail(std::errc::invalid_argument, where_,
              fmt::format("is damaged before byte {}: {}", offset_, what),
              "restore it from a copy, or record again");
}

// False at the end of the file, or at a cut.
Result<bool> RecordingReader::fill(std::span<char> bytes) {
  const auto got = source_(bytes);
  if (!got) return tl::unexpected(got.error());
  offset_ += *got;
  if (*got < bytes.size()) cut_ = cut_ || *got > 0;
  return *got == bytes.size();
}

Result<std::string> RecordingReader::read_line() {
  std::string line;
  for (char c = 0;;) {
    const auto got = fill({&c, 1});
    if (!got) return tl::unexpected(got.error());
    if (!*got) return line;
    if (c == '\n') return line;
    line += c;
    if (line.size() >= kLineMax) return line;
  }
}

Result<void> RecordingReader::read_head() {
  const auto first = read_line();
  if (!first) return tl::unexpected(first.error());
  if (first->empty() && offset_ == 0) {
    return fail(std::errc::invalid_argument, where_, "is empty",
                "record again: weir lustre record writes its head at once");
  }
  if (!first->starts_with(kMagic)) {
    return fail(std::errc::invalid_argument, where_, "is not a recording of weir lustre",
                "use a file of weir lustre record");
  }
  if (const std::string version = first->substr(kMagic.size()); version != kVersion) {
    return fail(std::errc::not_supported, where_,
                fmt::format("has version {} of the format; expected {}", quote(version), kVersion),
                "use the release of weir that recorded it");
  }
  const auto line = read_line();
  if (!line) return tl::unexpected(line.error());
  for (std::string_view rest = *line; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) return damaged("its second line is not valid");
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    std::uint64_t number = 0;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool is_number = read.ec == std::errc() && read.ptr == value.data() + value.size();
    if (key == "service") {
      head_.service = value;
      continue;
    }
    if (!is_number || number > kCountMax) return damaged("its second line is not valid");
    if (key == "cpts")
      head_.cpts = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(number, 1, 65536));
    if (key == "depth")
      head_.depth = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(number, 1, 65536));
    if (key == "started") head_.started_s = number;
    if (key == "period") head_.period = Nanoseconds{static_cast<std::int64_t>(number)};
  }
  return {};
}

std::optional<std::uint64_t> RecordingReader::get() {
  std::uint64_t number = 0;
  for (unsigned shift = 0; shift < 64 && used_ < block_.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(block_[used_++]);
    number |= std::uint64_t{byte & 127U} << shift;
    if (byte < 128) return number;
  }
  return std::nullopt;
}

std::optional<std::int64_t> RecordingReader::get_signed() {
  const auto number = get();
  if (!number) return std::nullopt;
  const std::int64_t value = unzigzag(*number);
  const auto most = static_cast<std::int64_t>(kCountMax);
  return value < -most || value > most ? std::nullopt : std::optional(value);
}

// False at the end.
Result<bool> RecordingReader::read_block() {
  char kind = 0;
  auto got = fill({&kind, 1});
  if (!got || !*got) return got;
  if (kind == kMagic.front())
    return damaged("another recording begins there; read them separately");
  if (kind != 'B') return damaged("there is no block");
  block_.clear();
  used_ = 0;
  for (char byte = 0; block_.size() < 10;) {
    got = fill({&byte, 1});
    if (!got) return got;
    if (!*got) return cut_ = true, false;
    block_ += byte;
    if ((byte & 128) == 0) break;
  }
  const auto size = get();
  if (!size || *size > kBlockMax) return damaged("a block has no valid size");
  char sum[4];
  got = fill(sum);
  if (!got) return got;
  block_.resize(*got ? static_cast<std::size_t>(*size) : 0);
  if (*got) got = fill(block_);
  if (!got) return got;
  if (!*got) return block_.clear(), cut_ = true, false;
  if (crc32c(block_) != load_be<std::uint32_t>(reinterpret_cast<const std::byte*>(sum))) {
    return damaged("a block has a wrong checksum");
  }
  used_ = 0;
  const auto number = get();
  const auto at = get();
  if (!number || !at) return damaged("a block is too short");
  if (*number != blocks_ || *at < at_) {
    return damaged(fmt::format("block {} follows {} blocks; blocks are missing or not in order",
                               *number, blocks_));
  }
  ++blocks_;
  return true;
}

bool RecordingReader::read_job(char kind) {
  const auto index = get();
  if (!index || *index >= RecordingWriter::kJobsMax) return false;
  const auto key = static_cast<std::uint32_t>(*index);
  if (kind == 'J') {
    const auto size = get();
    if (!size || *size > JobId::kSizeMax || block_.size() - used_ < *size) return false;
    const JobId id(std::string_view(block_).substr(used_, static_cast<std::size_t>(*size)));
    used_ += static_cast<std::size_t>(*size);
    const bool is_new = jobs_.try_emplace(key, Job{id}).second;
    return by_id_.try_emplace(id, key).second && is_new;
  }
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return false;
  if (kind == 'U' || kind == 'P') found->second.known = kind == 'P';
  if (kind == 'N') {
    const auto nodes = get();
    if (!nodes) return false;
    sizes_.emplace_back(found->second.job, *nodes);
  }
  if (kind == 'C') {
    const auto cost = get();
    if (!cost || *cost == 0) return false;
    found->second.cost = *cost;
  }
  if (kind == 'D') {
    by_id_.erase(found->second.job);
    jobs_.erase(found);
  }
  return true;
}

bool RecordingReader::begin_round(std::int64_t change, RecordedRound& round) {
  length_ += change;
  if (length_ < 1 || length_ > kLengthMax) return false;
  at_ += static_cast<std::uint64_t>(length_);
  round.round.at = Instant{} + RecordingWriter::kUnit * static_cast<std::int64_t>(at_);
  return true;
}

void RecordingReader::end_round(RecordedRound& round) {
  round.rules = rules_;
  round.sizes = std::exchange(sizes_, {});
  const Nanoseconds part =
      RecordingWriter::kUnit * length_ / static_cast<std::int64_t>(round.glances.size() + 1);
  for (std::size_t i = 0; i < round.glances.size(); ++i) {
    round.glances[i].at =
        round.round.at - part * static_cast<std::int64_t>(round.glances.size() - i);
  }
}

// Jobs are counted by index and reported by id, those that were served nothing too.
bool RecordingReader::read_served(RecordedRound& round, std::uint64_t& sum) {
  const auto count = get();
  if (!count || *count > jobs_.size()) return false;
  std::map<std::uint32_t, std::uint64_t> served;
  std::uint64_t index = 0;
  for (std::uint64_t i = 0; i < *count; ++i) {
    const auto both = get();
    if (!both) return false;
    std::uint64_t distance = *both & 3;
    if (distance == kFar) {
      const auto more = get();
      if (!more || *more > RecordingWriter::kJobsMax) return false;
      distance += *more;
    }
    index += distance;
    if (index >= RecordingWriter::kJobsMax || !jobs_.contains(static_cast<std::uint32_t>(index))) {
      return false;
    }
    const std::uint64_t amount = std::min((*both >> 2) + 1, kCountMax);
    if (!served.emplace(static_cast<std::uint32_t>(index), amount).second) return false;
    sum = std::min(sum + amount, kCountMax);
  }
  round.round.jobs.reserve(by_id_.size());
  for (const auto& [id, key] : by_id_) {
    const auto found = served.find(key);
    round.round.jobs.push_back({.job = id,
                                .served = Tokens{found == served.end() ? 0 : found->second},
                                .known = jobs_.at(key).known,
                                .can_hold = is_expressible(id),
                                .cost = jobs_.at(key).cost});
  }
  return true;
}

bool RecordingReader::read_glances(RecordedRound& round) {
  const auto count = get();
  if (!count || *count > kGlancesMax) return false;
  std::int64_t queued = queued_;
  std::int64_t busy = busy_;
  for (std::uint64_t i = 0; i < *count; ++i) {
    if (used_ >= block_.size()) return false;
    const auto both = static_cast<std::uint8_t>(block_[used_++]);
    std::optional<std::int64_t> more_queued = both / 16 - kSmall;
    std::optional<std::int64_t> more_busy = both % 16 - kSmall;
    if (both == kEscape) {
      more_queued = get_signed();
      more_busy = get_signed();
    }
    if (!more_queued || !more_busy) return false;
    queued += *more_queued;
    busy += *more_busy;
    if (queued < 0 || busy < 0) return false;
    round.glances.push_back({.at = {},
                             .queued = static_cast<std::uint64_t>(queued),
                             .busy = static_cast<std::uint64_t>(busy)});
  }
  glances_ = round.glances.size();
  return true;
}

bool RecordingReader::read_round(RecordedRound& round) {
  const auto longer = get_signed();
  const auto more_queued = get_signed();
  const auto more_busy = get_signed();
  const auto all = get();
  if (!longer || !more_queued || !more_busy || !all) return false;
  queued_ += *more_queued;
  busy_ += *more_busy;
  if (queued_ < 0 || busy_ < 0 || !begin_round(*longer, round)) return false;
  round.round.queued = static_cast<std::uint64_t>(queued_);
  round.round.busy = static_cast<std::uint64_t>(busy_);
  std::uint64_t sum = 0;
  if (!read_served(round, sum) || !read_glances(round)) return false;
  if (*all > 0) {
    const std::int64_t total = static_cast<std::int64_t>(sum) + unzigzag(*all - 1);
    if (total < 0 || total > static_cast<std::int64_t>(kCountMax) * 2) return false;
    round.round.served_all = Tokens{static_cast<std::uint64_t>(total)};
  }
  end_round(round);
  return true;
}

bool RecordingReader::read_idle() {
  const auto count = get();
  const auto longer = get_signed();
  if (!count || !longer || *count == 0 || *count > RecordingWriter::kIdleMax) return false;
  const auto rounds = static_cast<std::int64_t>(*count);
  const std::int64_t span = rounds * length_ + *longer;
  if (length_ < 1 || span < rounds || span > kLengthMax) return false;
  idle_ = *count;
  idle_end_ = at_ + static_cast<std::uint64_t>(span);
  return true;
}

// Evenly spaced up to the end of the run.
RecordedRound RecordingReader::idle_round() {
  RecordedRound round;
  at_ += (idle_end_ - at_) / idle_--;
  round.round.at = Instant{} + RecordingWriter::kUnit * static_cast<std::int64_t>(at_);
  round.round.queued = static_cast<std::uint64_t>(queued_);
  round.round.busy = static_cast<std::uint64_t>(busy_);
  round.round.served_all = Tokens{0};
  for (const auto& [id, key] : by_id_) {
    round.round.jobs.push_back(
        {.job = id, .served = {}, .known = jobs_.at(key).known, .can_hold = is_expressible(id)});
  }
  round.glances.assign(glances_, {{}, round.round.queued, round.round.busy});
  end_round(round);
  return round;
}

Result<std::optional<RecordedRound>> RecordingReader::next() {
  for (;;) {
    if (idle_ > 0) return std::optional(idle_round());
    if (used_ >= block_.size()) {
      const auto more = read_block();
      if (!more) return tl::unexpected(more.error());
      if (!*more) return std::optional<RecordedRound>();
      continue;
    }
    auto round = read_record();
    if (!round || *round) return round;
  }
}

// None after a record that is not a round.
Result<std::optional<RecordedRound>> RecordingReader::read_record() {
  const char kind = block_[used_++];
  bool is_valid = false;
  if (kind == 'R') {
    RecordedRound round;
    if (read_round(round)) return std::optional(std::move(round));
  } else if (kind == 'I') {
    is_valid = read_idle();
  } else if (kind == 'F') {
    const auto count = get();
    is_valid = count.has_value();
    if (is_valid) rules_ = *count;
  } else if (std::string_view("JUPDNC").find(kind) != std::string_view::npos) {
    is_valid = read_job(kind);
  }
  if (!is_valid) return damaged(fmt::format("a record of kind {} is not valid", quote({&kind, 1})));
  return std::optional<RecordedRound>();
}

}  // namespace weir::lustre
