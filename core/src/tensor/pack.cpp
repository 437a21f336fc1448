#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <numeric>
#include <optional>

namespace heddle {

namespace {

using Integers = std::vector<std::int32_t>;

Tensor to_tensor(Integers const& integers) {
  return from_host<std::int32_t>(integers, {static_cast<std::int64_t>(integers.size())});
}

Integers sorted_rows(Integers const& ids) {
  Integers order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t left, std::int32_t right) {
    return ids[static_cast<std::size_t>(left)] < ids[static_cast<std::size_t>(right)];
  });
  return order;
}

TokenIds make_ids(Integers const& ids) {
  return {to_tensor(ids), to_tensor(sorted_rows(ids))};
}

/// The chunks of a sequence that a rank holds, by ascending position.
std::vector<IndexRange> chunks_of(std::size_t length, GroupMember split) {
  if (split.ranks == 1) {
    return {{0, static_cast<std::int64_t>(length)}};
  }
  auto const chunk = [&](int index) { return share(static_cast<std::int64_t>(length), index, 2 * split.ranks); };
  return {chunk(split.rank), chunk(2 * split.ranks - 1 - split.rank)};
}

/// One side's sequences: their samples, the ids of their tokens in order, the tokens that these are to predict, and the
/// lengths of prefixes.
struct SideTokens {
  Integers sample, length, id;
  std::optional<Integers> output{};
  std::optional<Integers> prefix{};

  void add(std::int32_t of_sample, std::span<std::int32_t const> tokens) {
    sample.push_back(of_sample);
    length.push_back(static_cast<std::int32_t>(tokens.size()));
    id.insert(id.end(), tokens.begin(), tokens.end());
  }
};

/// One side's rows on one rank, on the host.
struct HostRows {
  Integers begin, length, sample, position;
  Integers token;  ///< each row's place in SideTokens::id

  HostRows(SideTokens const& side, GroupMember split) {
    std::int32_t first_token = 0;
    for (std::size_t sequence = 0; sequence < side.sample.size(); ++sequence) {
      begin.push_back(static_cast<std::int32_t>(sample.size()));
      for (IndexRange const chunk : chunks_of(static_cast<std::size_t>(side.length[sequence]), split)) {
        for (auto at = static_cast<std::int32_t>(chunk.begin); at < chunk.end; ++at) {
          sample.push_back(side.sample[sequence]);
          position.push_back(at);
          token.push_back(first_token + at);
        }
      }
      length.push_back(static_cast<std::int32_t>(sample.size()) - begin.back());
      first_token += side.length[sequence];
    }
  }

  TokenRows upload() const {
    TokenRows rows;
    rows.sequences.begin = to_tensor(begin);
    rows.sequences.length = to_tensor(length);
    rows.sequences.count = static_cast<std::int64_t>(begin.size());
    rows.sequences.max_length = length.empty() ? 0 : *std::max_element(length.begin(), length.end());
    rows.sample = to_tensor(sample);
    rows.position = to_tensor(position);
    rows.tokens = static_cast<std::int64_t>(sample.size());
    return rows;
  }

  /// The entries of `values` for the tokens of the rank's rows.
  Integers pick(Integers const& values) const {
    Integers picked(token.size());
    std::transform(token.begin(), token.end(), picked.begin(),
                   [&](std::int32_t place) { return values[static_cast<std::size_t>(place)]; });
    return picked;
  }
};

ContextRows make_context_rows(SideTokens const& side, int ranks) {
  ContextRows rows;
  Integers from_whole;  // tokens stand in `whole` as they do in `side`
  for (int rank = 0; rank < ranks; ++rank) {
    HostRows const host(side, {rank, ranks});
    rows.shards.push_back(host.upload());
    from_whole.insert(from_whole.end(), host.token.begin(), host.token.end());
  }
  Integers to_whole(from_whole.size());
  for (std::size_t row = 0; row < from_whole.size(); ++row) {
    to_whole[static_cast<std::size_t>(from_whole[row])] = static_cast<std::int32_t>(row);
  }
  rows.whole = HostRows(side, {}).upload();
  rows.to_whole = to_tensor(to_whole);
  rows.from_whole = to_tensor(from_whole);
  return rows;
}

void fill_side(Pack& pack, Side side, SideTokens const& tokens, GroupMember split) {
  bool const source = side == Side::source;
  HostRows const rows(tokens, split);
  TokenRows& uploaded = source ? pack.source_rows : pack.target_rows;
  uploaded = rows.upload();
  if (tokens.prefix) {
    uploaded.prefix_length = to_tensor(*tokens.prefix);
  }
  (source ? pack.source : pack.target_input) = make_ids(rows.pick(tokens.id));
  if (tokens.output) {
    (source ? pack.source_output : pack.target_output).id = to_tensor(rows.pick(*tokens.output));
  }
  if (split.ranks > 1) {
    (source ? pack.source_context : pack.target_context) = make_context_rows(tokens, split.ranks);
  }
}

std::int32_t present(std::int32_t id, char const* name) {
  if (id == SpecialIds::absent) {
    throw Error(fmt::format("the vocabulary has no {} token, which a pack of sentences needs", name));
  }
  return id;
}

}  // namespace

Pack make_pack(std::span<SentencePair const> pairs, SideIds const& ids, GroupMember split) {
  std::int32_t const source_end = present(ids.source.end, "end");
  std::int32_t const target_begin = present(ids.target.begin, "begin");
  std::int32_t const target_end = present(ids.target.end, "end");
  SideTokens source;
  SideTokens target;
  target.output.emplace();
  Integers tokens;
  for (SentencePair const& pair : pairs) {
    tokens.assign(pair.source.begin(), pair.source.end());
    tokens.push_back(source_end);
    source.add(pair.sample, tokens);
    tokens.assign(1, target_begin);
    tokens.insert(tokens.end(), pair.target.begin(), pair.target.end());
    target.add(pair.sample, tokens);
    target.output->insert(target.output->end(), pair.target.begin(), pair.target.end());
    target.output->push_back(target_end);
  }
  Pack pack;
  fill_side(pack, Side::source, source, split);
  fill_side(pack, Side::target, target, split);
  return pack;
}

Pack make_sequence_pack(std::span<TokenSequence const> sequences, Side side, GroupMember split) {
  SideTokens tokens;
  tokens.output.emplace();
  if (std::ranges::any_of(sequences, [](TokenSequence const& sequence) { return sequence.prefix > 0; })) {
    tokens.prefix.emplace();
  }
  for (TokenSequence const& sequence : sequences) {
    if (sequence.input.size() != sequence.output.size()) {
      throw Error(fmt::format("a sequence of {} tokens with {} to predict: there must be one for each",
                              sequence.input.size(), sequence.output.size()));
    }
    tokens.add(sequence.sample, sequence.input);
    if (sequence.prefix < 0 || sequence.prefix > std::ssize(sequence.input)) {
      throw Error(
          fmt::format("a sequence of {} tokens cannot have a prefix of {}", sequence.input.size(), sequence.prefix));
    }
    tokens.output->insert(tokens.output->end(), sequence.output.begin(), sequence.output.end());
    if (tokens.prefix) {
      tokens.prefix->push_back(sequence.prefix);
    }
  }
  Pack pack;
  fill_side(pack, side, tokens, split);
  return pack;
}

Pack make_source_pack(std::span<std::vector<std::int32_t> const> sentences, SpecialIds const& ids) {
  std::int32_t const end = present(ids.end, "end");
  SideTokens source;
  std::int32_t sample = 0;
  for (auto const& sentence : sentences) {
    Integers tokens = sentence;
    tokens.push_back(end);
    source.add(sample++, tokens);
  }
  Pack pack;
  fill_side(pack, Side::source, source, {});
  return pack;
}

}  // namespace heddle
