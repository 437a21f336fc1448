#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <map>
#include <string_view>
#include <vector>

#include "decorated_backend.hpp"

namespace heddle {

namespace {

/// A collective call as ranks compare it.
struct Header {
  std::int64_t sequence = 0;
  std::int64_t elements = 0;
  std::int64_t dtype = 0;
  std::int64_t detail = 0;
  std::uint64_t counts = 0;  ///< a digest of the row counts
  std::array<char, 24> collective{};

  bool operator==(Header const&) const = default;
  auto operator<=>(Header const&) const = default;
};

Header header_of(CollectiveCall const& call, std::int64_t sequence) {
  bool const reduces = call.collective == CollectiveOp::all_reduce || call.collective == CollectiveOp::reduce_scatter;
  Header header{.sequence = sequence,
                .elements = common_elements(call),
                .dtype = static_cast<std::int64_t>(call.payload().dtype()),
                .detail = reduces ? static_cast<int>(call.op) : call.peer};
  for (std::int64_t const count :
       call.collective == CollectiveOp::all_to_all ? CollectiveCall::Counts() : call.counts) {
    header.counts = header.counts * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(count) + 1;
  }
  std::string_view const name = call.name();
  std::copy_n(name.begin(), std::min(name.size(), header.collective.size() - 1), header.collective.begin());
  return header;
}

std::string describe(Header const& header) {
  std::string const collective = header.collective.data();
  std::string text = fmt::format("{} as its collective {}", collective, header.sequence);
  if (header.elements > 0) {
    text +=
        fmt::format(", {} elements of {}", readable_count(header.elements), name_of(static_cast<DType>(header.dtype)));
  }
  if (header.detail >= 0) {
    constexpr std::array reductions{"sum", "max", "min"};
    auto const detail = static_cast<std::size_t>(header.detail);
    text += collective == "broadcast" || detail >= reductions.size() ? fmt::format(", from rank {}", detail)
                                                                     : fmt::format(", {}", reductions[detail]);
  }
  if (header.counts != 0) {
    text += fmt::format(", rows with the digest {:x}", header.counts);
  }
  return text;
}

/// Exchanges a header before each collective (its number, collective, elements, dtype, reduction or root, and row
/// counts) and throws Error on every rank of the group, naming the calls, if they are not the same. Messages have
/// headers already.
class CheckedBackend final : public DecoratedBackend {
 public:
  using DecoratedBackend::DecoratedBackend;

 protected:
  void before(CollectiveCall const& call) override;
  std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int /*color*/,
                                                NamedGroup group) override {
    return std::make_shared<CheckedBackend>(std::move(part), std::move(group));
  }

 private:
  /// Throws Error on every rank unless each rank expects what each other one sends to it.
  void compare_exchange(CollectiveCall const& call) const;

  std::int64_t calls_ = 0;  ///< collectives so far
};

void CheckedBackend::before(CollectiveCall const& call) {
  if (call.is_message()) {
    return;
  }
  Header const own = header_of(call, ++calls_);
  std::vector<Header> const headers = gather_values(inner(), own);
  std::map<Header, std::vector<int>> callers;
  for (int rank = 0; rank < size(); ++rank) {
    callers[headers[static_cast<std::size_t>(rank)]].push_back(world_rank(rank));
  }
  if (callers.size() == 1) {
    if (call.collective == CollectiveOp::all_to_all) {
      compare_exchange(call);
    }
    return;
  }
  std::vector<std::string> calls;
  for (auto const& [header, ranks] : callers) {
    calls.push_back(fmt::format("{} {} {} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                                ranks.size() == 1 ? "calls" : "call", describe(header)));
  }
  throw Error("the ranks of a {} group do not call the same collective: {}", group().name, fmt::join(calls, "; "));
}

void CheckedBackend::compare_exchange(CollectiveCall const& call) const {
  auto const ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> own(call.counts.begin(), call.counts.end());
  own.insert(own.end(), call.receive_counts.begin(), call.receive_counts.end());
  auto const all = gather_lists<std::int64_t>(inner(), own);
  std::vector<std::string> mismatches;
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      std::int64_t const sent = all[from][to];
      std::int64_t const expected = all[to][ranks + from];
      if (sent != expected) {
        mismatches.push_back(fmt::format("rank {} sends {} elements to rank {}, which expects {}",
                                         world_rank(static_cast<int>(from)), sent, world_rank(static_cast<int>(to)),
                                         expected));
      }
    }
  }
  if (!mismatches.empty()) {
    throw Error("the ranks of a {} group do not agree on all_to_all_rows as its collective {}: {}", group().name,
                calls_, fmt::join(mismatches, "; "));
  }
}

}  // namespace

std::shared_ptr<CommunicatorBackend> checked(std::shared_ptr<CommunicatorBackend> world) {
  return decorated<CheckedBackend>(std::move(world));
}

}  // namespace heddle
