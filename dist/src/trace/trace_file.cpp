#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/config/options.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/trace/trace_file.hpp>
#include <iterator>
#include <limits>
#include <map>
#include <ostream>
#include <span>
#include <sstream>

namespace heddle {

namespace {

constexpr int work_lane = 0;

constexpr int exchanges = 8;

/// On rank 0: asks `rank` for its time. The answer was given between question and answer, so that half of their
/// distance bounds the error: milliseconds where more processes run than cores. Two ranks of one machine read the same
/// clock, and clocks of two machines differ by more than that: an offset that may be 0 is 0.
void find_offset_of(Communicator const& world, int rank, Clock const& now) {
  std::int64_t offset = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int exchange = 0; exchange < exchanges; ++exchange) {
    std::int64_t const asked = now();
    send_value(world, asked, rank);
    auto const answered = receive_value<std::int64_t>(world, rank);
    std::int64_t const took = now() - asked;
    if (took < shortest) {
      shortest = took;
      offset = answered - (asked + took / 2);
    }
  }
  send_value(world, 2 * std::abs(offset) <= shortest + 1 ? std::int64_t{0} : offset, rank);
}

/// The events of one rank, as they travel.
struct RankEvents {
  std::vector<TraceEvent> events;
  std::vector<std::string> texts;
  std::string host;
  std::int64_t offset = 0;
};

/// The sizes of the events and of the texts that follow.
struct Sizes {
  std::int64_t events = 0;
  std::int64_t text_bytes = 0;
  std::int64_t offset = 0;
};

void send_to_root(Communicator const& world, RankEvents const& own) {
  std::string const lines = fmt::format("{}\n{}\n", own.host, fmt::join(own.texts, "\n"));
  receive_value<std::int32_t>(world, 0);  // rank 0 holds the events of one rank at a time
  send_value(world, Sizes{std::ssize(own.events), std::ssize(lines), own.offset}, 0);
  send_bytes(world, std::as_bytes(std::span(own.events)), 0);
  send_bytes(world, std::as_bytes(std::span(lines)), 0);
}

RankEvents receive_from(Communicator const& world, int rank) {
  constexpr std::int32_t go = 1;
  send_value(world, go, rank);
  auto const sizes = receive_value<Sizes>(world, rank);
  RankEvents result;
  result.offset = sizes.offset;
  result.events.resize(static_cast<std::size_t>(sizes.events));
  receive_bytes(world, std::as_writable_bytes(std::span(result.events)), rank);
  std::string texts(static_cast<std::size_t>(sizes.text_bytes), '\0');
  receive_bytes(world, std::as_writable_bytes(std::span(texts)), rank);
  std::istringstream lines(texts);
  std::getline(lines, result.host);
  for (std::string text; std::getline(lines, text);) {
    result.texts.push_back(text);
  }
  return result;
}

/// The start of the earliest event of all ranks, by rank 0's clock. Collective over `world`.
std::int64_t earliest(Communicator const& world, RankEvents const& own) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (TraceEvent const& event : own.events) {
    first = std::min(first, event.begin - own.offset);
  }
  return -max_of(world, -first);
}

/// Names of layers and kernels may be a plug-in's. TOML's escapes are JSON's, too.
std::string json_text(std::string_view text) {
  return to_toml(OptionValue(std::string(text)));
}

/// Writes one rank's events, in microseconds since `origin` of rank 0's clock.
class Writer {
 public:
  Writer(std::ostream& output, std::int64_t origin) : output_(output), origin_(origin) {}

  void write(int rank, RankEvents const& from) {
    from_ = &from;
    rank_ = rank;
    lanes_.clear();
    metadata("process_name", work_lane, fmt::format("rank {} on {}", rank, from.host));
    metadata("thread_name", work_lane, "work");
    for (TraceEvent const& event : from.events) {
      if (event.kind == WorkKind::transfer) {
        transfer(event);
      } else if (event.end > 0) {
        item(fmt::format(R"({{"ph":"X",{},"dur":{:.3f}{}}})", head(event, work_lane, event.begin),
                         1e-3 * static_cast<double>(event.end - event.begin), arguments(event)));
      }
    }
  }

 private:
  std::string const& text(std::uint32_t number) const { return from_->texts[number]; }

  void item(std::string const& json) {
    output_ << (first_ ? "\n" : ",\n") << json;
    first_ = false;
  }

  void metadata(std::string_view kind, int lane, std::string const& name) {
    item(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", kind, rank_, lane,
                     json_text(name)));
  }

  std::string head(TraceEvent const& event, int lane, std::int64_t at) const {
    bool const pass = event.kind == WorkKind::pass;
    return fmt::format(R"("cat":"{}","name":{},"pid":{},"tid":{},"ts":{:.3f})", name_of(event.kind),
                       json_text(pass ? name_of(event.direction) : std::string_view(text(event.name))), rank_, lane,
                       1e-3 * static_cast<double>(at - from_->offset - origin_));
  }

  std::string arguments(TraceEvent const& event) const {
    switch (event.kind) {
      case WorkKind::pass:
        return fmt::format(R"(,"args":{{"micro_batch":{},"part":{}}})", event.number, event.place);
      case WorkKind::layer:
        return fmt::format(R"(,"args":{{"pass":"{}"}})", name_of(event.direction));
      case WorkKind::kernel:
        return fmt::format(R"(,"args":{{"extents":{}}})", json_text(text(event.detail)));
      case WorkKind::communication:
      case WorkKind::waiting:
      case WorkKind::transfer:
        return fmt::format(R"(,"args":{{"group":{}{}{}}})", json_text(text(event.detail)),
                           event.number >= 0 ? fmt::format(R"(,"bytes":{})", event.number) : "",
                           event.place >= 0 ? fmt::format(R"(,"peer":{})", event.place) : "");
      case WorkKind::step:
      case WorkKind::data:
        return "";
    }
    return "";
  }

  void transfer(TraceEvent const& event) {
    auto const [lane, added] = lanes_.try_emplace(event.detail, work_lane + 1 + static_cast<int>(lanes_.size()));
    if (added) {
      metadata("thread_name", lane->second, fmt::format("transfers of {}", text(event.detail)));
    }
    std::string const id = fmt::format(R"(,"id":{})", next_id_++);
    item(fmt::format(R"({{"ph":"b",{}{}{}}})", head(event, lane->second, event.begin), id, arguments(event)));
    item(fmt::format(R"({{"ph":"e",{}{}}})", head(event, lane->second, event.end), id));
  }

  std::ostream& output_;
  std::int64_t origin_;
  RankEvents const* from_ = nullptr;
  int rank_ = 0;
  bool first_ = true;
  std::int64_t next_id_ = 1;
  std::map<std::uint32_t, int> lanes_;  ///< by the group's name
};

}  // namespace

std::int64_t clock_offset(Communicator const& world, Clock const& now) {
  if (world.rank() == 0) {
    for (int rank = 1; rank < world.size(); ++rank) {
      find_offset_of(world, rank, now);
    }
    return 0;
  }
  for (int exchange = 0; exchange < exchanges; ++exchange) {
    receive_value<std::int64_t>(world, 0);
    send_value(world, now(), 0);
  }
  return receive_value<std::int64_t>(world, 0);
}

void write_trace(Communicator const& world, StepTrace const& trace, std::int64_t offset, std::ostream* output) {
  RankEvents own{trace.events(), trace.texts(), host_name(), offset};
  // Perfetto drops events before 0, and rank 0 may not be the first to begin.
  std::int64_t const origin = earliest(world, own);
  bool failed = false;
  if (world.rank() == 0) {
    *output << R"({"displayTimeUnit":"ms","traceEvents":[)";
    Writer writer(*output, origin);
    writer.write(0, own);
    for (int rank = 1; rank < world.size(); ++rank) {
      writer.write(rank, receive_from(world, rank));
    }
    *output << "\n]}\n" << std::flush;
    failed = !*output;
  } else {
    send_to_root(world, own);
  }
  if (any_of(world, failed)) {
    throw Error("the trace cannot be written (is the disk full?)");
  }
}

}  // namespace heddle
