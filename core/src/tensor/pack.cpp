#include <algorithm>
#include <array>
#include <bit>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/core/tensor/uploaded_tensor.hpp>
#include <iterator>
#include <numeric>

namespace heddle {

namespace {

using Integers = std::vector<std::int32_t>;

/// The chunks of a sequence that a rank holds, by ascending position; with one rank the second is empty.
std::array<IndexRange, 2> chunks_of(std::size_t length, GroupMember split) {
  if (split.ranks == 1) {
    return {{{0, static_cast<std::int64_t>(length)}, {}}};
  }
  auto const chunk = [&](int index) { return share(static_cast<std::int64_t>(length), index, 2 * split.ranks); };
  return {{chunk(split.rank), chunk(2 * split.ranks - 1 - split.rank)}};
}

/// One side's rows on one rank, on the host.
struct HostRows {
  Integers begin, length, sample, position;
  Integers token;           ///< each row's place in SideFields::id
  Integers typed_position;  ///< TokenRows::typed_position, where the side has prefixes

  void fill(SideFields const& side, GroupMember split) {
    for (Integers* const integers : {&begin, &length, &sample, &position, &token, &typed_position}) {
      integers->clear();
    }
    std::int32_t first_token = 0;
    for (std::size_t sequence = 0; sequence < side.sample.size(); ++sequence) {
      begin.push_back(static_cast<std::int32_t>(sample.size()));
      std::int32_t const prefix = side.prefix.empty() ? 0 : side.prefix[sequence];
      for (IndexRange const chunk : chunks_of(static_cast<std::size_t>(side.length[sequence]), split)) {
        for (auto at = static_cast<std::int32_t>(chunk.begin); at < chunk.end; ++at) {
          sample.push_back(side.sample[sequence]);
          position.push_back(at);
          token.push_back(first_token + at);
          if (!side.prefix.empty()) {
            typed_position.push_back(2 * at + (prefix > 0 && at >= prefix ? 1 : 0));
          }
        }
      }
      length.push_back(static_cast<std::int32_t>(sample.size()) - begin.back());
      first_token += side.length[sequence];
    }
  }
};

std::int32_t present(std::int32_t id, char const* name) {
  if (id == SpecialIds::absent) {
    throw Error("the vocabulary has no {} token, which a pack of sentences needs", name);
  }
  return id;
}

/// The number of slabs that may be in flight to a device before the host waits for it.
constexpr std::size_t max_unread = 32;

std::int64_t aligned(std::size_t elements) {
  return rounded_up(static_cast<std::int64_t>(elements), line_elements);
}

}  // namespace

/// Memory for the arrays of one pack.
struct PackSlab {
  UploadedTensor memory;    ///< int32
  std::uint64_t waits = 0;  ///< waits_for_kernels() at its upload

  /// No pack has it, and its host memory has been read.
  bool free() const {
    bool const read = memory.tensor().space() == MemorySpace::host || waits_for_kernels() > waits;
    return memory.tensor().sole_owner() && read;
  }
};

struct PackMemory::Buffers {
  HostRows rows;
  Integers scratch, order, from_whole, to_whole;
  std::vector<PackSlab> slabs;  ///< the slabs of all packs that were alive at once
};

PackMemory::PackMemory() : buffers_(std::make_unique<Buffers>()) {}
PackMemory::~PackMemory() = default;

/// Writes the arrays of one pack into one piece of memory.
class PackWriter {
 public:
  PackWriter(PackFields const& tokens, PackMemory* memory)
      : tokens_(tokens), kept_(memory != nullptr), buffers_(*(kept_ ? *memory : own_).buffers_) {}

  Pack write(GroupMember split) {
    take_slab(split);
    Pack pack;
    for (Side const side : {Side::source, Side::target}) {
      if (tokens_.of(side).used) {
        fill_side(pack, side, split);
      }
    }
    upload_slab();
    return pack;
  }

 private:
  /// Finds memory for all arrays that `write` makes.
  void take_slab(GroupMember split) {
    std::int64_t elements = 0;
    for (SideFields const* const side : {&tokens_.source, &tokens_.target}) {
      std::int64_t const sequences = aligned(side->sample.size());
      std::int64_t const tokens = aligned(side->id.size());
      std::int64_t const shards = split.ranks > 1 ? split.ranks : 0;
      // Begin, length and prefix; sample, position, id, order and output, and perhaps typed positions, weights and
      // alignments. Then the shards, each with its own ends of cache lines, the whole, and the two maps between them.
      std::int64_t const optional = (side->prefix.empty() ? 0 : 1) + (side->weight.empty() ? 0 : 1);
      elements += 3 * sequences + (5 + optional) * tokens;
      elements += side->aligned.empty() ? 0 : tokens + line_elements + aligned(side->aligned_with.size());
      elements += shards * (2 * sequences + 4 * line_elements) + (shards > 0 ? 2 * sequences + 6 * tokens : 0);
    }
    auto& slabs = buffers_.slabs;
    auto const fits = [&](PackSlab const& slab) { return slab.memory.tensor().size() >= elements && slab.free(); };
    auto found = std::ranges::find_if(slabs, fits);
    if (found == slabs.end() && slabs.size() >= max_unread) {
      fence(nullptr);  // a long validation does not wait for kernels by itself
      found = std::ranges::find_if(slabs, fits);
    }
    if (found == slabs.end()) {
      // Smaller ones that are free will not be needed again.
      std::erase_if(slabs, [](PackSlab const& slab) { return slab.free(); });
      auto const size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(elements)));
      slabs.push_back({UploadedTensor(DType::int32, {size})});
      found = std::prev(slabs.end());
    }
    slab_ = &*found;
  }

  Tensor place(Integers const& integers) {
    auto const count = static_cast<std::int64_t>(integers.size());
    copy_from_host(slab_->memory.host().rows(used_, count), integers.data());
    Tensor const tensor = slab_->memory.tensor().rows(used_, count);
    used_ += aligned(integers.size());
    return tensor;
  }

  /// One copy for all arrays.
  void upload_slab() {
    slab_->memory.upload(used_);
    slab_->waits = waits_for_kernels();
    if (!kept_ && slab_->memory.tensor().space() != MemorySpace::host) {
      fence(nullptr);  // the host memory is freed
    }
  }

  /// The entries of `values`, integers or the bits of others, for the tokens of the rank's rows.
  template <class Value>
  Integers const& pick(std::vector<Value> const& values) {
    buffers_.scratch.clear();
    for (std::int32_t const token : buffers_.rows.token) {
      buffers_.scratch.push_back(std::bit_cast<std::int32_t>(values[static_cast<std::size_t>(token)]));
    }
    return buffers_.scratch;
  }

  AlignedTokens alignment(SideFields const& side) {
    Integers& first = buffers_.order;  // of each token's
    first.assign(1, 0);
    std::partial_sum(side.aligned.begin(), side.aligned.end(), std::back_inserter(first));
    Integers& begin = buffers_.to_whole;
    Integers& position = buffers_.scratch;
    begin.assign(1, 0);
    position.clear();
    for (std::int32_t const token : buffers_.rows.token) {
      auto const from = side.aligned_with.begin() + first[static_cast<std::size_t>(token)];
      position.insert(position.end(), from, from + side.aligned[static_cast<std::size_t>(token)]);
      begin.push_back(static_cast<std::int32_t>(position.size()));
    }
    Tensor const begins = place(begin);
    return {begins, place(position)};
  }

  TokenIds ids(Integers const& values) {
    Integers const& picked = pick(values);
    Integers& order = buffers_.order;
    order.resize(picked.size());
    std::iota(order.begin(), order.end(), 0);
    // Equal ids stay in their order, as in a stable sort, which would allocate.
    std::ranges::sort(order, [&](std::int32_t left, std::int32_t right) {
      std::int32_t const left_id = picked[static_cast<std::size_t>(left)];
      std::int32_t const right_id = picked[static_cast<std::size_t>(right)];
      return left_id != right_id ? left_id < right_id : left < right;
    });
    Tensor const id = place(picked);
    return {id, place(order)};
  }

  TokenRows upload() {
    HostRows const& host = buffers_.rows;
    TokenRows rows;
    rows.sequences.begin = place(host.begin);
    rows.sequences.length = place(host.length);
    rows.sequences.count = static_cast<std::int64_t>(host.begin.size());
    rows.sequences.max_length = host.length.empty() ? 0 : *std::ranges::max_element(host.length);
    rows.sample = place(host.sample);
    rows.position = place(host.position);
    rows.tokens = static_cast<std::int64_t>(host.sample.size());
    return rows;
  }

  ContextRows context_rows(SideFields const& side, int ranks) {
    ContextRows rows;
    Integers& from_whole = buffers_.from_whole;  // tokens stand in `whole` as they do in `side`
    from_whole.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      buffers_.rows.fill(side, {rank, ranks});
      rows.shards.push_back(upload());
      from_whole.insert(from_whole.end(), buffers_.rows.token.begin(), buffers_.rows.token.end());
    }
    Integers& to_whole = buffers_.to_whole;
    to_whole.resize(from_whole.size());
    for (std::size_t row = 0; row < from_whole.size(); ++row) {
      to_whole[static_cast<std::size_t>(from_whole[row])] = static_cast<std::int32_t>(row);
    }
    buffers_.rows.fill(side, {});
    rows.whole = upload();
    rows.to_whole = place(to_whole);
    rows.from_whole = place(from_whole);
    return rows;
  }

  void fill_side(Pack& pack, Side side, GroupMember split) {
    bool const source = side == Side::source;
    SideFields const& own = tokens_.of(side);
    buffers_.rows.fill(own, split);
    TokenRows& uploaded = source ? pack.source_rows : pack.target_rows;
    uploaded = upload();
    if (!own.prefix.empty()) {
      uploaded.prefix_length = place(own.prefix);
      uploaded.typed_position = source ? place(buffers_.rows.typed_position) : Tensor();
    }
    (source ? pack.source : pack.target_input) = ids(own.id);
    if (own.predicts) {
      RowTargets& targets = source ? pack.source_output : pack.target_output;
      targets.id = place(pick(own.output));
      targets.weight = own.weight.empty() ? Tensor() : place(pick(own.weight)).with_dtype(DType::float32);
    }
    if (!source && !own.aligned.empty()) {
      pack.alignment = alignment(own);
    }
    if (split.ranks > 1) {
      (source ? pack.source_context : pack.target_context) = context_rows(own, split.ranks);
    }
  }

  PackFields const& tokens_;
  PackMemory own_;
  bool kept_;  ///< the buffers outlive the writer
  PackMemory::Buffers& buffers_;
  PackSlab* slab_ = nullptr;
  std::int64_t used_ = 0;  ///< elements of it
};

namespace {

/// Where a grid has each token of a side: the rank among those that divide it, and the row there.
struct TokenPlaces {
  TokenPlaces(SideFields const& side, int ranks) : rank(side.id.size()), row(side.id.size()) {
    HostRows rows;
    for (int each = 0; each < ranks; ++each) {
      rows.fill(side, {each, ranks});
      for (std::size_t index = 0; index < rows.token.size(); ++index) {
        auto const token = static_cast<std::size_t>(rows.token[index]);
        rank[token] = each;
        row[token] = static_cast<std::int32_t>(index);
      }
    }
  }

  Integers rank, row;
};

/// One of the two grids of a side's tokens.
struct DividedTokens {
  TokenPlaces const& places;
  GroupMember all;   ///< the ranks that divide them
  GroupMember only;  ///< those of them that divide nothing in the other grid
};

/// The exchange within a group that divides the tokens before it. Its ranks have one place in `after.only`; those that
/// differ only in their place in `before.only` get the same rows.
RowExchange exchange_of(DividedTokens const& before, DividedTokens const& after) {
  GroupMember const from = before.all;
  std::vector<Integers> sent(static_cast<std::size_t>(from.ranks));
  std::vector<Integers> received(static_cast<std::size_t>(from.ranks));  // rows after the exchange
  for (std::size_t token = 0; token < before.places.rank.size(); ++token) {
    int const needs = after.places.rank[token];
    if (before.places.rank[token] == from.rank && needs % after.only.ranks == after.only.rank) {
      for (int copy = 0; copy < before.only.ranks; ++copy) {
        int const rank = needs / after.only.ranks * before.only.ranks + copy;
        sent[static_cast<std::size_t>(rank)].push_back(before.places.row[token]);
      }
    }
    if (needs == after.all.rank) {
      received[static_cast<std::size_t>(before.places.rank[token])].push_back(after.places.row[token]);
    }
  }
  RowExchange exchange;
  Integers all, placed(static_cast<std::size_t>(std::ranges::count(after.places.rank, after.all.rank)));
  std::int32_t place = 0;
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    exchange.send_rows.push_back(std::ssize(sent[rank]));
    exchange.receive_rows.push_back(std::ssize(received[rank]));
    all.insert(all.end(), sent[rank].begin(), sent[rank].end());
    for (std::int32_t const row : received[rank]) {
      placed[static_cast<std::size_t>(row)] = place++;
    }
  }
  exchange.sent = from_host<std::int32_t>(all, {std::ssize(all)});
  exchange.placed = from_host<std::int32_t>(placed, {std::ssize(placed)});
  return exchange;
}

/// Appends a source and its end token to the sequence that was begun last.
void add_source(SideFields& side, std::span<std::int32_t const> tokens, SpecialIds const& ids) {
  std::size_t const language = ids.language_last && !tokens.empty() ? 1 : 0;
  side.add(tokens.subspan(language));
  side.add(present(ids.end, "end"));
  side.add(tokens.first(language));
}

}  // namespace

void SideFields::clear(bool with_side) {
  used = with_side;
  predicts = false;
  for_each_field([this](auto field, Each /*each*/, auto /*missing*/) { (this->*field).clear(); });
}

void SideFields::append(SideFields const& more) {
  auto const sizes = [](SideFields const& side) {
    return std::array{side.sample.size(), side.id.size(), side.aligned_with.size()};
  };
  auto const [before, added] = std::array{sizes(*this), sizes(more)};
  used = more.used;
  predicts = more.predicts;
  for_each_field([&, &before = before, &added = added](auto field, Each each, auto missing) {
    auto& own = this->*field;
    auto const index = static_cast<std::size_t>(each);
    if (own.empty() && (more.*field).empty()) {
      return;
    }
    own.resize(before[index], missing);
    own.insert(own.end(), (more.*field).begin(), (more.*field).end());
    own.resize(before[index] + added[index], missing);
  });
}

void add_second_pass(PackFields& tokens, std::int32_t samples) {
  for (SideFields* const side : {&tokens.source, &tokens.target}) {
    SideFields second = *side;
    std::ranges::for_each(second.sample, [samples](std::int32_t& sample) { sample += samples; });
    side->append(second);
  }
}

void SideFields::begin_sequence(std::int32_t of_sample) {
  sample.push_back(of_sample);
  length.push_back(0);
}

void SideFields::add(std::int32_t token) {
  id.push_back(token);
  ++length.back();
}

void SideFields::add(std::span<std::int32_t const> tokens) {
  id.insert(id.end(), tokens.begin(), tokens.end());
  length.back() += static_cast<std::int32_t>(tokens.size());
}

namespace {

/// Appends the weights of a side's rows, of which the last `rows` are new; `given` has them in the rows' order.
void add_weights(SideFields& side, std::size_t rows, std::vector<float> const& given) {
  if (given.empty() && side.weight.empty()) {
    return;
  }
  if (given.size() > 1 && given.size() != rows) {
    throw Error("a target with {} weights for the {} tokens to predict: expected one for each, or one for all",
                given.size(), rows);
  }
  side.weight.resize(side.id.size() - rows, 1);
  if (given.size() > 1) {
    side.weight.insert(side.weight.end(), given.begin(), given.end());
  }
  side.weight.resize(side.id.size(), given.empty() ? 1 : given.front());
}

/// Appends the alignment of a target's rows, of which the last `rows` are new. Row i predicts token i or, where the
/// first token is a language and comes last, token i + 1; the source's rows have its tokens likewise.
void add_alignment(SideFields& side, std::size_t rows, std::vector<TokenLink> links, SideIds const& ids) {
  if (links.empty() && side.aligned.empty()) {
    return;
  }
  side.aligned.resize(side.id.size(), 0);
  std::ranges::sort(links, {}, [](TokenLink const& link) { return std::pair(link.target, link.source); });
  for (auto const& [source, target] : links) {
    std::int32_t const row = target - (ids.target.language_last ? 1 : 0);
    std::int32_t const position = source - (ids.source.language_last ? 1 : 0);
    if (row >= 0 && position >= 0) {  // a language is not text
      ++side.aligned[side.id.size() - rows + static_cast<std::size_t>(row)];
      side.aligned_with.push_back(position);
    }
  }
}

}  // namespace

void fill_tokens(PackFields& tokens, std::span<Sample const> pairs, SideIds const& ids) {
  std::int32_t const target_begin = present(ids.target.begin, "start");
  std::int32_t const target_end = present(ids.target.end, "end");
  auto& [source, target] = tokens;
  source.clear(true);
  target.clear(true);
  target.predicts = true;
  for (Sample const& pair : pairs) {
    std::vector<std::int32_t> const& predicted = pair.target.tokens;
    source.begin_sequence(pair.number);
    add_source(source, pair.source.tokens, ids.source);
    target.begin_sequence(pair.number);
    bool const language_last = ids.target.language_last && !predicted.empty();
    if (!language_last) {
      target.add(target_begin);
    }
    target.add(predicted);
    target.output.insert(target.output.end(), predicted.begin() + (language_last ? 1 : 0), predicted.end());
    target.output.push_back(target_end);
    if (language_last) {
      target.add(target_end);
      target.output.push_back(predicted.front());
    }
    std::vector<float> weights = pair.target.weights;
    if (language_last && weights.size() > 1) {
      std::ranges::rotate(weights, weights.begin() + 1);
    }
    add_weights(target, predicted.size() + 1, weights);
    add_alignment(target, predicted.size() + 1, pair.alignment, ids);
  }
}

void fill_tokens(PackFields& tokens, std::span<TokenSequence const> sequences, Side side) {
  tokens.source.clear(side == Side::source);
  tokens.target.clear(side == Side::target);
  SideFields& used = side == Side::source ? tokens.source : tokens.target;
  used.predicts = true;
  bool const prefixed = std::ranges::any_of(sequences, [](TokenSequence const& each) { return each.prefix > 0; });
  for (TokenSequence const& sequence : sequences) {
    if (sequence.input.size() != sequence.output.size()) {
      throw Error("a sequence of {} tokens with {} to predict: there must be one for each", sequence.input.size(),
                  sequence.output.size());
    }
    if (sequence.prefix < 0 || sequence.prefix > std::ssize(sequence.input)) {
      throw Error("a sequence of {} tokens cannot have a prefix of {}", sequence.input.size(), sequence.prefix);
    }
    used.begin_sequence(sequence.sample);
    used.add(sequence.input);
    used.output.insert(used.output.end(), sequence.output.begin(), sequence.output.end());
    if (prefixed) {
      used.prefix.push_back(sequence.prefix);
    }
    add_weights(used, sequence.input.size(), sequence.weights);
  }
}

Pack make_pack(PackFields const& tokens, ContextSplit const& split, PackMemory* memory) {
  Pack pack = PackWriter(tokens, memory).write(split.decoder());
  if (split.differs()) {
    PackFields const source{.source = tokens.source, .target = {}};
    auto encoder = std::make_shared<EncoderPack>();
    encoder->pack = PackWriter(source, memory).write(split.encoder());
    TokenPlaces const of_encoder(tokens.source, split.encoder().ranks);
    TokenPlaces const of_decoder(tokens.source, split.decoder().ranks);
    DividedTokens const in_encoder{of_encoder, split.encoder(), split.encoder_only};
    DividedTokens const in_decoder{of_decoder, split.decoder(), split.decoder_only};
    encoder->to_decoder = exchange_of(in_encoder, in_decoder);
    encoder->from_decoder = exchange_of(in_decoder, in_encoder);
    pack.encoder = std::move(encoder);
  }
  return pack;
}

Pack make_pack(std::span<Sample const> pairs, SideIds const& ids, ContextSplit const& split) {
  PackFields tokens;
  fill_tokens(tokens, pairs, ids);
  return make_pack(tokens, split);
}

Pack make_sequence_pack(std::span<TokenSequence const> sequences, Side side, ContextSplit const& split) {
  PackFields tokens;
  fill_tokens(tokens, sequences, side);
  return make_pack(tokens, split);
}

Pack make_source_pack(std::span<SampleSide const> sentences, SpecialIds const& ids, PackMemory* memory) {
  PackFields tokens;
  tokens.source.clear(true);
  std::int32_t sample = 0;
  for (SampleSide const& sentence : sentences) {
    tokens.source.begin_sequence(sample++);
    add_source(tokens.source, sentence.tokens, ids);
  }
  return make_pack(tokens, {}, memory);
}

}  // namespace heddle
