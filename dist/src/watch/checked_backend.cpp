#include "checked_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <map>
#include <string_view>
#include <vector>

namespace heddle {

namespace {

/// A collective call as ranks compare it.
struct Header {
  std::int64_t sequence = 0;
  std::int64_t elements = 0;
  std::int64_t dtype = 0;
  std::int64_t detail = 0;
  std::uint64_t counts = 0;  ///< a digest of the row counts
  std::array<char, 24> verb{};

  bool operator==(Header const&) const = default;
  auto operator<=>(Header const&) const = default;
};
constexpr std::int64_t header_words = sizeof(Header) / sizeof(std::int32_t);

Header header_of(VerbCall const& call, std::int64_t sequence) {
  Header header{.sequence = sequence,
                .elements = call.elements,
                .dtype = static_cast<std::int64_t>(call.dtype),
                .detail = call.detail};
  for (std::int64_t const count : call.counts) {
    header.counts = header.counts * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(count) + 1;
  }
  std::string_view const name = call.name;
  std::copy_n(name.begin(), std::min(name.size(), header.verb.size() - 1), header.verb.begin());
  return header;
}

std::string describe(Header const& header) {
  std::string const verb = header.verb.data();
  std::string text = fmt::format("{} as its collective {}", verb, header.sequence);
  if (header.elements > 0) {
    text +=
        fmt::format(", {} elements of {}", readable_count(header.elements), name_of(static_cast<DType>(header.dtype)));
  }
  if (header.detail >= 0) {
    constexpr std::array reductions{"sum", "max", "min"};
    auto const detail = static_cast<std::size_t>(header.detail);
    text += verb == "broadcast" || detail >= reductions.size() ? fmt::format(", from rank {}", detail)
                                                               : fmt::format(", {}", reductions[detail]);
  }
  if (header.counts != 0) {
    text += fmt::format(", rows with the digest {:x}", header.counts);
  }
  return text;
}

}  // namespace

void CheckedBackend::before(VerbCall const& call) {
  if (call.peer >= 0) {
    return;
  }
  Header const own = header_of(call, ++calls_);
  Tensor const mine = Tensor::allocate_on_host(DType::int32, {header_words});
  Tensor const all = Tensor::allocate_on_host(DType::int32, {header_words * size()});
  copy_from_host(mine, &own);
  inner().all_gather(mine, all);
  std::vector<Header> headers(static_cast<std::size_t>(size()));
  copy_to_host(headers.data(), all);
  std::map<Header, std::vector<int>> callers;
  for (int rank = 0; rank < size(); ++rank) {
    auto const place = static_cast<std::size_t>(rank);
    callers[headers[place]].push_back(group_.members[place]);
  }
  if (callers.size() == 1) {
    return;
  }
  std::vector<std::string> calls;
  for (auto const& [header, ranks] : callers) {
    calls.push_back(fmt::format("{} {} {} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                                ranks.size() == 1 ? "calls" : "call", describe(header)));
  }
  throw Error(
      fmt::format("the ranks of a {} group do not call the same collective: {}", group_.name, fmt::join(calls, "; ")));
}

void CheckedBackend::before_exchange(Counts send, Counts receive) {
  auto const ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> own(send.begin(), send.end());
  own.insert(own.end(), receive.begin(), receive.end());
  std::vector<std::int64_t> all(own.size() * ranks);
  constexpr std::int64_t words = sizeof(std::int64_t) / sizeof(std::int32_t);
  Tensor const mine = Tensor::allocate_on_host(DType::int32, {std::ssize(own) * words});
  Tensor const gathered = Tensor::allocate_on_host(DType::int32, {std::ssize(all) * words});
  copy_from_host(mine, own.data());
  inner().all_gather(mine, gathered);
  copy_to_host(all.data(), gathered);
  std::vector<std::string> mismatches;
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      std::int64_t const sent = all[from * 2 * ranks + to];
      std::int64_t const expected = all[(to * 2 + 1) * ranks + from];
      if (sent != expected) {
        mismatches.push_back(fmt::format("rank {} sends {} elements to rank {}, which expects {}", group_.members[from],
                                         sent, group_.members[to], expected));
      }
    }
  }
  if (!mismatches.empty()) {
    throw Error(fmt::format("the ranks of a {} group do not agree on all_to_all_rows as its collective {}: {}",
                            group_.name, calls_, fmt::join(mismatches, "; ")));
  }
}

}  // namespace heddle
