// trace_reader TRACE.json REPORT.json RANKS STEPS: checks a trace of all steps of a run against its report. Prints the
// sums that it compared and the number of slices, as Perfetto counts them; prints the first fault and ends with 1 if
// there is one.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace json = boost::json;

constexpr double rounding = 0.0011;  // microseconds: times have three digits

struct Span {
  std::string category;
  std::string name;
  double begin = 0;
  double end = 0;
  json::object arguments;
};

struct Transfer {
  std::string name;
  double begin = 0;
  double end = -1;
  std::int64_t bytes = -1;
  int peer = -1;
};

struct Rank {
  std::vector<Span> spans;                     ///< of the lane of work
  std::map<std::int64_t, Transfer> transfers;  ///< by id, in the order of their starts
  std::set<int> lanes;
  std::set<int> named_lanes;
  bool named = false;
};

[[noreturn]] void fail(std::string const& message) {
  throw std::runtime_error(message);
}

void require(bool condition, std::string const& message) {
  if (!condition) {
    fail(message);
  }
}

json::value read(char const* path) {
  std::ifstream file(path);
  std::string const text{std::istreambuf_iterator<char>(file), {}};
  require(!text.empty(), fmt::format("{} is empty or missing", path));
  return json::parse(text);
}

std::string text_of(json::value const& value) {
  return std::string(value.as_string().c_str());
}

void add_transfer(Rank& rank, json::object const& event, int lane) {
  require(lane > 0, "a transfer is in the lane of work");
  std::int64_t const id = event.at("id").as_int64();
  double const time = event.at("ts").to_number<double>();
  if (text_of(event.at("ph")) == "e") {
    auto const found = rank.transfers.find(id);
    require(found != rank.transfers.end() && found->second.end < 0, "a transfer ends that had not begun");
    found->second.end = time;
    return;
  }
  json::object const& arguments = event.at("args").as_object();
  Transfer transfer{text_of(event.at("name")), time};
  transfer.bytes = arguments.contains("bytes") ? arguments.at("bytes").as_int64() : -1;
  transfer.peer = arguments.contains("peer") ? static_cast<int>(arguments.at("peer").as_int64()) : -1;
  require(rank.transfers.try_emplace(id, transfer).second, "two transfers have one id");
}

std::map<int, Rank> ranks_of(json::value const& trace) {
  std::map<int, Rank> ranks;
  for (json::value const& value : trace.at("traceEvents").as_array()) {
    json::object const& event = value.as_object();
    Rank& rank = ranks[static_cast<int>(event.at("pid").as_int64())];
    int const lane = static_cast<int>(event.at("tid").as_int64());
    std::string const phase = text_of(event.at("ph"));
    if (phase == "M") {
      rank.named = rank.named || text_of(event.at("name")) == "process_name";
      if (text_of(event.at("name")) == "thread_name") {
        rank.named_lanes.insert(lane);
      }
      continue;
    }
    rank.lanes.insert(lane);
    require(event.at("ts").to_number<double>() >= 0, "an event is before 0, where Perfetto drops it");
    if (phase != "X") {
      add_transfer(rank, event, lane);
      continue;
    }
    require(lane == 0, "a complete event is outside of the lane of work");
    double const begin = event.at("ts").to_number<double>();
    double const duration = event.at("dur").to_number<double>();
    require(duration >= 0, "an event ends before it begins");
    rank.spans.push_back({text_of(event.at("cat")), text_of(event.at("name")), begin, begin + duration,
                          event.contains("args") ? event.at("args").as_object() : json::object()});
  }
  return ranks;
}

bool communicates(Span const& span) {
  return span.category == "communication" || span.category == "waiting";
}

/// Checks that the events of the lane are nested, and that each category is inside of those that it belongs to.
void check_nesting(int number, Rank& rank) {
  std::ranges::stable_sort(
      rank.spans, [](Span const& a, Span const& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  std::vector<Span const*> open;
  for (Span const& span : rank.spans) {
    while (!open.empty() && open.back()->end <= span.begin + rounding && open.back()->end < span.end) {
      open.pop_back();
    }
    std::string const words = fmt::format("rank {}: {} {} at {:.3f}", number, span.category, span.name, span.begin);
    require(open.empty() || span.end <= open.back()->end + rounding,
            fmt::format("{} overlaps {} {}", words, open.empty() ? "" : open.back()->category,
                        open.empty() ? "" : open.back()->name));
    auto const inside = [&](std::string const& category) {
      return std::ranges::any_of(open, [&](Span const* each) { return each->category == category; });
    };
    require((span.category == "step") == open.empty(), words + " is not inside of a step");
    require(span.category != "layer" || inside("pass"), words + " is not inside of a pass");
    require(!communicates(span) || !(inside("communication") || inside("waiting")),
            words + " is inside of other communication");
    require(!communicates(span) || span.arguments.contains("group"), words + " has no group");
    require(!inside("kernel"), words + " is inside of a kernel");
    open.push_back(&span);
  }
}

/// Checks that the passes and layers forward and backward are the same, and those of weights, if there are any.
void check_passes(int number, Rank const& rank) {
  std::map<std::string, std::pair<int, int>> layers;
  std::map<std::string, int> passes;
  for (Span const& span : rank.spans) {
    if (span.category == "pass") {
      ++passes[span.name];
    } else if (span.category == "layer") {
      auto& [forward, backward] = layers[span.name];
      ++(text_of(span.arguments.at("pass")) == "forward" ? forward : backward);
    }
  }
  int const forward = passes["forward"];
  bool const equal = std::ranges::all_of(passes, [&](auto const& pass) { return pass.second == forward; });
  require(forward > 0 && passes.contains("backward") && equal,
          fmt::format("rank {}: {} passes forward, {} backward, {} of weights", number, forward, passes["backward"],
                      passes["weights"]));
  require(!layers.empty(), fmt::format("rank {} has no layers", number));
  for (auto const& [name, counts] : layers) {
    bool const loss = name == "output";  // computes its gradient in the forward pass
    require(counts.first == (loss ? counts.first : counts.second),
            fmt::format("rank {}: {} runs {} times forward, {} backward", number, name, counts.first, counts.second));
  }
}

/// Messages do not arrive before they were sent, by the aligned clocks.
int check_messages(std::map<int, Rank> const& ranks) {
  constexpr double tolerance = 10'000;  // microseconds; clocks are aligned while other processes run
  std::map<std::tuple<int, int, std::string>, std::vector<Transfer>> sent;
  std::map<std::tuple<int, int, std::string>, std::vector<Transfer>> received;
  for (auto const& [number, rank] : ranks) {
    for (auto const& [id, transfer] : rank.transfers) {
      std::string const group = transfer.name.substr(0, transfer.name.find('.'));
      if (transfer.name.ends_with(".send")) {
        sent[{number, transfer.peer, group}].push_back(transfer);
      } else if (transfer.name.ends_with(".receive")) {
        received[{transfer.peer, number, group}].push_back(transfer);
      }
    }
  }
  int checked = 0;
  for (auto& [pair, messages] : received) {
    auto const by_bytes = [](Transfer const& a, Transfer const& b) {
      return std::pair(a.bytes, a.begin) < std::pair(b.bytes, b.begin);
    };
    std::vector<Transfer>& source = sent[pair];
    std::ranges::sort(messages, by_bytes);
    std::ranges::sort(source, by_bytes);
    require(messages.size() == source.size(), "not as many messages were received as sent");
    for (std::size_t index = 0; index < messages.size(); ++index, ++checked) {
      require(messages[index].bytes == source[index].bytes, "a message was received with other bytes");
      require(messages[index].end + tolerance >= source[index].begin,
              fmt::format("a message arrived {:.0f} us before it was sent", source[index].begin - messages[index].end));
    }
  }
  return checked;
}

double sum_of(Rank const& rank, auto const& which) {
  double sum = 0;
  for (Span const& span : rank.spans) {
    sum += which(span) ? 1e-6 * (span.end - span.begin) : 0;
  }
  return sum;
}

/// The number of complete events and transfers of all ranks.
std::size_t slices(std::map<int, Rank> const& ranks) {
  std::size_t sum = 0;
  for (auto const& [number, rank] : ranks) {
    sum += rank.spans.size() + rank.transfers.size();
  }
  return sum;
}

/// The trace and the report have read the same clocks: they differ by the rounding of the trace's times.
void require_equal(std::string const& name, double traced, double reported) {
  fmt::print("{}: {:.6f} s traced, {:.6f} s reported\n", name, traced, reported);
  require(std::abs(traced - reported) <= 1e-3 * reported + 1e-6, name + ": the trace and the report differ");
}

void check_sums(int number, Rank const& rank, json::object const& report) {
  std::string const prefix = fmt::format("rank {} ", number);
  json::object const& seconds = report.at("seconds").as_object();
  require_equal(prefix + "steps", sum_of(rank, [](Span const& span) { return span.category == "step"; }),
                seconds.at("steps").to_number<double>());
  require_equal(prefix + "communicating", sum_of(rank, communicates), seconds.at("communicating").to_number<double>());
  for (auto const& [group, values] : report.at("communication").as_object()) {
    std::string const name(group);
    json::value const& reported = values.at("seconds");  // null: no collective of the group was inside a step
    require_equal(
        prefix + name,
        sum_of(rank,
               [&](Span const& span) { return communicates(span) && text_of(span.arguments.at("group")) == name; }),
        reported.is_null() ? 0 : reported.to_number<double>());
  }
  double const kernels = sum_of(rank, [](Span const& span) { return span.category == "kernel"; });
  require(kernels > 0 && kernels <= seconds.at("computing").to_number<double>() * 1.001,
          prefix + "has more seconds of kernels than of computing");
}

void check(char const* trace_path, char const* report_path, int ranks, int steps) {
  auto found = ranks_of(read(trace_path));
  json::value const report = read(report_path);
  require(static_cast<int>(found.size()) == ranks, fmt::format("events of {} ranks", found.size()));
  for (auto& [number, rank] : found) {
    require(number >= 0 && number < ranks, "events of a rank that is not there");
    require(rank.named && std::ranges::includes(rank.named_lanes, rank.lanes),
            fmt::format("a lane of rank {} has no name", number));
    check_nesting(number, rank);
    check_passes(number, rank);
    for (auto const& [id, transfer] : rank.transfers) {
      require(transfer.end >= transfer.begin, "a transfer does not end");
    }
    auto const made = std::ranges::count(rank.spans, "step", &Span::category);
    require(made == steps, fmt::format("rank {} has {} steps", number, made));
    check_sums(number, rank, report.at("ranks").as_array().at(static_cast<std::size_t>(number)).as_object());
  }
  fmt::print("messages in order: {}\n", check_messages(found));
  fmt::print("slices: {}\n", slices(found));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    require(argc == 5, "trace_reader TRACE.json REPORT.json RANKS STEPS");
    check(argv[1], argv[2], std::stoi(argv[3]), std::stoi(argv[4]));
  } catch (std::exception const& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
  return 0;
}
