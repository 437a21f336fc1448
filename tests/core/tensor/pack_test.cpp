#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <map>
#include <numeric>

#include "test.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

constexpr SideIds ids{.source = {.end = 2}, .target = {.begin = 1, .end = 3}};

std::vector<std::int32_t> host(Tensor const& tensor) {
  return to_host<std::int32_t>(tensor);
}

TEST(PackTest, ATokenThatTheVocabularyLacksIsNamed) {
  std::vector<Sample> const pairs{{0, {5}, {7}}};
  SideIds without_begin = ids;
  without_begin.target.begin = SpecialIds::absent;
  expect_error([&] { make_pack(pairs, without_begin); }, "has no start token");
  std::vector<SampleSide> const sentences{{5}};
  expect_error([&] { make_source_pack(sentences, SpecialIds{.begin = 1}); }, "has no end token");
  EXPECT_EQ(ids.of(Side::source).end, 2);
  EXPECT_EQ(ids.of(Side::target).end, 3);
}

TEST(PackTest, ALanguageMayFollowTheEndTokenAndBeginATarget) {
  SideIds last = ids;
  last.source.language_last = last.target.language_last = true;
  std::vector<Sample> const pairs{{0, {9, 5, 6}, {8, 7}}, {1, {9}, {8}}};
  Pack const pack = make_pack(pairs, last);
  EXPECT_THAT(host(pack.source.id), ElementsAre(5, 6, 2, 9, 2, 9));
  EXPECT_THAT(host(pack.target_input.id), ElementsAre(8, 7, 3, 8, 3));
  EXPECT_THAT(host(pack.target_output.id), ElementsAre(7, 3, 8, 3, 8));
  EXPECT_THAT(host(pack.source_rows.sequences.length), ElementsAre(4, 2));
  EXPECT_THAT(host(pack.target_rows.sequences.length), ElementsAre(3, 2));
  std::vector<SampleSide> const sources{{9, 5}, {}};
  EXPECT_THAT(host(make_source_pack(sources, last.source).source.id), ElementsAre(5, 2, 9, 2));
}

TEST(PackTest, MemoryIsUsedAgainOnceAPackHasGone) {
  PackFields tokens;
  fill_tokens(tokens, std::vector<Sample>{{0, {5, 6}, {7}}, {1, {8}, {9}}}, ids);
  PackMemory memory;
  std::optional<Pack> first = make_pack(tokens, {}, &memory);
  void const* const place = first->source.id.raw();
  Pack const second = make_pack(tokens, {}, &memory);
  EXPECT_NE(second.source.id.raw(), place) << "the first one is alive";
  first.reset();
  fence(nullptr);  // on a device the pack's upload may not be done before
  fill_tokens(tokens, std::vector<Sample>{{3, {4}, {9, 9}}}, ids);
  Pack const third = make_pack(tokens, {}, &memory);
  EXPECT_EQ(third.source.id.raw(), place);
  EXPECT_THAT(host(third.source.id), ElementsAre(4, 2));
  EXPECT_THAT(host(third.target_input.id), ElementsAre(1, 9, 9));
  EXPECT_THAT(host(second.source.id), ElementsAre(5, 6, 2, 8, 2));
}

/// Every rank's pack, by its places (of both, of the encoder only, of the decoder only).
using GridPacks = std::map<std::array<int, 3>, Pack>;

/// The positions that rank `own` of `group` has after an exchange within it.
std::vector<std::int32_t> exchanged(std::vector<Pack const*> const& group, std::size_t own, bool to_decoder) {
  auto const exchange_of = [&](Pack const& pack) -> RowExchange const& {
    return to_decoder ? pack.encoder->to_decoder : pack.encoder->from_decoder;
  };
  std::vector<std::int32_t> received;
  for (std::size_t from = 0; from < group.size(); ++from) {
    RowExchange const& sender = exchange_of(*group[from]);
    auto const positions = host((to_decoder ? group[from]->encoder->pack : *group[from]).source_rows.position);
    auto const sent = host(sender.sent);
    auto const begin = std::accumulate(sender.send_rows.begin(),
                                       sender.send_rows.begin() + static_cast<std::ptrdiff_t>(own), std::int64_t{0});
    EXPECT_EQ(sender.send_rows[own], exchange_of(*group[own]).receive_rows[from]);
    for (std::int64_t row = begin; row < begin + sender.send_rows[own]; ++row) {
      received.push_back(positions[static_cast<std::size_t>(sent[static_cast<std::size_t>(row)])]);
    }
  }
  std::vector<std::int32_t> placed;
  for (std::int32_t const place : host(exchange_of(*group[own]).placed)) {
    placed.push_back(received[static_cast<std::size_t>(place)]);
  }
  return placed;
}

TEST(PackTest, RowsThatGridsExchangeAreThoseOfTheOtherGrid) {
  std::vector<Sample> pairs;
  for (std::int32_t sample = 0; sample < 4; ++sample) {
    pairs.push_back({sample, std::vector<std::int32_t>(static_cast<std::size_t>(7 * sample), 5), {7}});
  }
  for (auto const& [both, encoder, decoder] : {std::array{1, 2, 1}, {1, 1, 3}, {2, 3, 2}}) {
    SCOPED_TRACE(testing::Message() << both << " " << encoder << " " << decoder);
    GridPacks packs;
    for (int x = 0; x < both; ++x) {
      for (int u = 0; u < encoder; ++u) {
        for (int v = 0; v < decoder; ++v) {
          packs[{x, u, v}] = make_pack(pairs, ids, {{x, both}, {u, encoder}, {v, decoder}});
        }
      }
    }
    for (auto const& [place, pack] : packs) {
      for (bool const to_decoder : {true, false}) {
        std::vector<Pack const*> group;  // the ranks that divide the rows before
        std::size_t own = 0;
        for (auto const& [other, its_pack] : packs) {
          std::size_t const kept = to_decoder ? 2 : 1;
          if (other[kept] == place[kept]) {
            own = other == place ? group.size() : own;
            group.push_back(&its_pack);
          }
        }
        Pack const& after = to_decoder ? pack : pack.encoder->pack;
        EXPECT_EQ(exchanged(group, own, to_decoder), host(after.source_rows.position));
      }
    }
  }
}

TEST(PackTest, ASecondPassHasTheSameTokensOfOtherSamplesInTheSecondHalfOfEachRanksRows) {
  PackFields tokens;
  fill_tokens(tokens, std::vector<Sample>{{0, {5, 6}, {7, 8, 9}}, {1, {8}, {9}}}, ids);
  Pack const one = make_pack(tokens, {1, 2});
  add_second_pass(tokens, 2);
  EXPECT_THAT(tokens.source.sample, ElementsAre(0, 1, 2, 3));
  Pack const both = make_pack(tokens, {1, 2});
  std::int64_t const rows = one.target_rows.tokens;
  ASSERT_EQ(both.target_rows.tokens, 2 * rows);
  EXPECT_EQ(host(both.target_input.id.rows(0, rows)), host(one.target_input.id));
  EXPECT_EQ(host(both.target_input.id.rows(rows, rows)), host(one.target_input.id));
  for (std::int64_t row = 0; row < rows; ++row) {
    auto const sample = host(both.target_rows.sample);
    EXPECT_EQ(sample[static_cast<std::size_t>(row + rows)], sample[static_cast<std::size_t>(row)] + 2);
  }
}

TEST(PackTest, WithoutSentencesItStillHasItsSides) {
  Pack const pack = make_pack(std::span<Sample const>(), ids);
  EXPECT_FALSE(pack.source.id.empty());
  EXPECT_FALSE(pack.target_output.id.empty());
  EXPECT_EQ(pack.target_rows.tokens, 0);
  Pack const decoder = make_sequence_pack({}, Side::target);
  EXPECT_TRUE(decoder.source.id.empty());
  EXPECT_FALSE(decoder.target_output.id.empty());
}

TEST(PackTest, HoldsEverySentenceWithoutPadding) {
  std::vector<Sample> const pairs{{4, {5, 6}, {7}}, {9, {}, {8, 5}}};
  Pack const pack = make_pack(pairs, ids);

  EXPECT_THAT(host(pack.source.id), ElementsAre(5, 6, 2, 2));
  EXPECT_THAT(host(pack.target_input.id), ElementsAre(1, 7, 1, 8, 5));
  EXPECT_THAT(host(pack.target_output.id), ElementsAre(7, 3, 8, 5, 3));

  TokenRows const& source = pack.rows(Side::source);
  EXPECT_EQ(source.tokens, 4);
  EXPECT_EQ(source.sequences.count, 2);
  EXPECT_EQ(source.sequences.max_length, 3);
  EXPECT_THAT(host(source.sequences.begin), ElementsAre(0, 3));
  EXPECT_THAT(host(source.sequences.length), ElementsAre(3, 1));
  EXPECT_THAT(host(source.sample), ElementsAre(4, 4, 4, 9));
  EXPECT_THAT(host(source.position), ElementsAre(0, 1, 2, 0));

  TokenRows const& target = pack.rows(Side::target);
  EXPECT_EQ(target.tokens, 5);
  EXPECT_EQ(target.sequences.max_length, 3);
  EXPECT_THAT(host(target.sequences.begin), ElementsAre(0, 2));
  EXPECT_THAT(host(target.sequences.length), ElementsAre(2, 3));
  EXPECT_THAT(host(target.sample), ElementsAre(4, 4, 9, 9, 9));
  EXPECT_THAT(host(target.position), ElementsAre(0, 1, 0, 1, 2));
}

TEST(PackTest, RowsAreOrderedByIdAndThenByPlace) {
  std::vector<Sample> const pairs{{0, {6, 5, 6}, {4, 4}}, {1, {5}, {9, 4}}};
  Pack const pack = make_pack(pairs, test_ids);
  // source ids: 6 5 6 2 5 2; target input: 1 4 4 1 9 4
  EXPECT_THAT(host(pack.source.row_order), ElementsAre(3, 5, 1, 4, 0, 2));
  EXPECT_THAT(host(pack.target_input.row_order), ElementsAre(0, 3, 1, 2, 5, 4));
}

TEST(PackTest, ASourceSideAloneIsEnoughToTranslate) {
  std::vector<SampleSide> const sentences{{5, 6}, {}, {7}};
  Pack const pack = make_source_pack(sentences, test_ids.source);
  EXPECT_THAT(host(pack.source.id), ElementsAre(5, 6, 2, 2, 7, 2));
  EXPECT_THAT(host(pack.source_rows.sequences.length), ElementsAre(3, 1, 2));
  EXPECT_THAT(host(pack.source_rows.sample), ElementsAre(0, 0, 0, 1, 2, 2));
  EXPECT_EQ(pack.target_rows.tokens, 0);
}

TEST(PackTest, SequencesOfOneSideStandOnThatSideOnly) {
  std::vector<TokenSequence> const sequences{{4, {5, 6, 7}, {-1, 8, -1}}, {9, {3}, {3}}};
  for (Side const side : {Side::source, Side::target}) {
    Pack const pack = make_sequence_pack(sequences, side);
    bool const source = side == Side::source;
    EXPECT_THAT(host(source ? pack.source.id : pack.target_input.id), ElementsAre(5, 6, 7, 3));
    EXPECT_THAT(host((source ? pack.source_output : pack.target_output).id), ElementsAre(-1, 8, -1, 3));
    EXPECT_THAT(host(pack.rows(side).sample), ElementsAre(4, 4, 4, 9));
    EXPECT_THAT(host(pack.rows(side).position), ElementsAre(0, 1, 2, 0));
    EXPECT_EQ(pack.rows(source ? Side::target : Side::source).tokens, 0);
    // Over two ranks: tokens and what they predict stay together, by ascending position.
    Pack const second = make_sequence_pack(sequences, side, {1, 2});
    EXPECT_THAT(host((source ? second.source_output : second.target_output).id), ElementsAre(-1, 8));
    EXPECT_THAT(host(source ? second.source.id : second.target_input.id), ElementsAre(5, 6));
    EXPECT_EQ(second.context(side).whole.tokens, 4);
  }
  EXPECT_TRUE(make_sequence_pack(sequences, Side::target).target_rows.prefix_length.empty());
  std::vector<TokenSequence> const prefixed{{4, {5, 6, 7}, {-1, 8, 9}, 2}, {9, {3}, {3}}};
  for (GroupMember const split : {GroupMember{0, 1}, GroupMember{1, 2}}) {
    Pack const pack = make_sequence_pack(prefixed, Side::target, split);
    EXPECT_THAT(host(pack.target_rows.prefix_length), ElementsAre(2, 0));
    EXPECT_TRUE(pack.target_rows.typed_position.empty());
  }
  // In a source the tokens after the prefix are those of a second text.
  EXPECT_TRUE(make_sequence_pack(sequences, Side::source).source_rows.typed_position.empty());
  EXPECT_THAT(host(make_sequence_pack(prefixed, Side::source).source_rows.typed_position), ElementsAre(0, 2, 5, 0));
  EXPECT_THAT(host(make_sequence_pack(prefixed, Side::source, {0, 2}).source_rows.typed_position), ElementsAre(5, 0));
  std::vector<TokenSequence> const too_long{{0, {5}, {7}, 2}};
  expect_error([&] { make_sequence_pack(too_long, Side::target); }, "a sequence of 1 tokens cannot have a prefix of 2");
  std::vector<TokenSequence> const uneven{{0, {5, 6}, {7}}};
  expect_error([&] { make_sequence_pack(uneven, Side::source); }, "a sequence of 2 tokens with 1 to predict");
}

TEST(PackTest, HoldsTheFieldsThatSamplesHave) {
  std::vector<Sample> pairs{{0, {5, 6}, {7, 8}, {{1, 0}, {0, 1}, {1, 1}}}, {1, {5}, {7}}};
  Pack const plain = make_pack(std::span(pairs).last(1), ids);
  EXPECT_TRUE(plain.alignment.begin.empty());
  EXPECT_TRUE(plain.target_output.weight.empty());
  pairs[1].target.weights = {0.5F};
  Pack const pack = make_pack(pairs, ids);
  EXPECT_THAT(host(pack.alignment.begin), ElementsAre(0, 1, 3, 3, 3, 3));
  EXPECT_THAT(host(pack.alignment.position), ElementsAre(1, 0, 1));
  EXPECT_THAT(to_host<float>(pack.target_output.weight), ElementsAre(1, 1, 1, 0.5F, 0.5F));
  pairs[1].target.weights = {3, 2};
  pairs[1].alignment = {{0, 0}};
  // Rank 1 of 2 has the first two rows of the first target, and none of the second, of which rank 0 has both.
  Pack const part = make_pack(pairs, ids, {1, 2});
  EXPECT_THAT(host(part.target_output.id), ElementsAre(7, 8, 7));
  EXPECT_THAT(host(part.alignment.begin), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(host(part.alignment.position), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(to_host<float>(part.target_output.weight), ElementsAre(1, 1, 3));
  pairs[1].target.weights = {3, 2, 1};
  expect_error([&] { make_pack(pairs, ids); }, "a target with 3 weights for the 2 tokens to predict");
}

TEST(PackTest, FieldsFollowALanguageToTheEnd) {
  SideIds last = ids;
  last.source.language_last = last.target.language_last = true;
  std::vector<Sample> pairs{{0, {9, 5, 6}, {8, 7, 4}, {{0, 0}, {2, 1}, {1, 2}}}};
  pairs[0].target.weights = {1, 2, 3, 4};
  Pack const pack = make_pack(pairs, last);
  EXPECT_THAT(host(pack.target_output.id), ElementsAre(7, 4, 3, 8));
  EXPECT_THAT(host(pack.alignment.begin), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_THAT(host(pack.alignment.position), ElementsAre(1, 0));
  EXPECT_THAT(to_host<float>(pack.target_output.weight), ElementsAre(2, 3, 4, 1));
}

TEST(PackTest, AppendedSequencesHaveTheFieldsOfBoth) {
  PackFields plain;
  fill_tokens(plain, std::vector<Sample>{{0, {5}, {7}}}, ids);
  Sample given{1, {5}, {7, 8}, {{0, 1}}};
  given.target.weights = {2};
  PackFields rich;
  fill_tokens(rich, std::vector<Sample>{given}, ids);
  PackFields after = plain;
  after.target.append(rich.target);
  EXPECT_THAT(after.target.sample, ElementsAre(0, 1));
  EXPECT_THAT(after.target.weight, ElementsAre(1, 1, 2, 2, 2));
  EXPECT_THAT(after.target.aligned, ElementsAre(0, 0, 0, 1, 0));
  rich.target.append(plain.target);
  EXPECT_THAT(rich.target.weight, ElementsAre(2, 2, 2, 1, 1));
  EXPECT_THAT(rich.target.aligned, ElementsAre(0, 1, 0, 0, 0));
  EXPECT_THAT(rich.target.aligned_with, ElementsAre(0));
  EXPECT_TRUE(rich.target.prefix.empty());
}

TEST(PackTest, NoSentencesMakeAnEmptyPack) {
  Pack const pack = make_pack({}, test_ids);
  EXPECT_EQ(pack.source_rows.tokens, 0);
  EXPECT_EQ(pack.target_rows.sequences.count, 0);
  EXPECT_THAT(host(pack.source.id), IsEmpty());
}

TEST(PackTest, ContextRanksHoldTheFirstAndTheLastOfTheirChunks) {
  // Source: 8 tokens make 4 chunks of 2; target: 3 tokens make chunks of 0, 1, 1, 1.
  std::vector<Sample> const pairs{{4, {10, 11, 12, 13, 14, 15, 16}, {20, 21}}};
  Pack const first = make_pack(pairs, ids, {0, 2});
  EXPECT_THAT(host(first.source.id), ElementsAre(10, 11, 16, 2));
  EXPECT_THAT(host(first.source_rows.position), ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(host(first.source_rows.sequences.length), ElementsAre(4));
  EXPECT_THAT(host(first.target_input.id), ElementsAre(21));
  EXPECT_THAT(host(first.target_output.id), ElementsAre(3));
  EXPECT_THAT(host(first.target_rows.position), ElementsAre(2));

  Pack const second = make_pack(pairs, ids, {1, 2});
  EXPECT_THAT(host(second.source.id), ElementsAre(12, 13, 14, 15));
  EXPECT_THAT(host(second.target_input.id), ElementsAre(1, 20));
  EXPECT_THAT(host(second.target_rows.sample), ElementsAre(4, 4));

  ContextRows const& rows = first.context(Side::source);
  EXPECT_THAT(host(rows.to_whole), ElementsAre(0, 1, 4, 5, 6, 7, 2, 3));
  EXPECT_THAT(host(rows.from_whole), ElementsAre(0, 1, 6, 7, 2, 3, 4, 5));
  EXPECT_THAT(host(rows.shards[1].position), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(host(rows.whole.position), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(PackTest, ContextRanksOfManySequencesHoldEachTokenOnce) {
  std::vector<Sample> pairs;
  for (std::int32_t sample = 0; sample < 9; ++sample) {
    pairs.push_back({sample, std::vector<std::int32_t>(static_cast<std::size_t>(sample), 7), {}});
  }
  Pack const whole = make_pack(pairs, ids);
  for (int ranks : {2, 3, 4}) {
    std::set<std::pair<std::int32_t, std::int32_t>> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      Pack const part = make_pack(pairs, ids, {rank, ranks});
      EXPECT_EQ(part.source_rows.sequences.count, 9);
      auto const sample = host(part.source_rows.sample);
      auto const position = host(part.source_rows.position);
      for (std::size_t row = 0; row < sample.size(); ++row) {
        EXPECT_TRUE(seen.emplace(sample[row], position[row]).second) << "a token stands on two ranks";
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), whole.source_rows.tokens);
  }
  EXPECT_TRUE(whole.context(Side::source).shards.empty());
}

}  // namespace
}  // namespace heddle
