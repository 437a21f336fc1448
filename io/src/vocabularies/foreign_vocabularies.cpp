#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/io/vocabularies/foreign_vocabularies.hpp>
#include <unordered_map>
#include <unordered_set>

#include "tokenizers/tokenizer_model.hpp"

namespace heddle {
namespace {

using Type = SentencePiece::Type;

/// Texts of pieces that fill a vocabulary of `size` pieces up to the rows of a checkpoint's tables; none for 0 rows.
/// Tables are padded to a multiple of some power of two: many more rows are another vocabulary's.
std::vector<std::string> fillers(std::int64_t size, std::int64_t rows) {
  constexpr std::int64_t max_fillers = std::int64_t{1} << 16;
  if (rows != 0 && (rows < size || rows > size + max_fillers)) {
    throw DataError("the embedding table has {} rows, but the vocabulary has {} pieces", rows, size);
  }
  std::vector<std::string> texts;
  for (std::int64_t number = 0; size + number < rows; ++number) {
    texts.push_back(fmt::format("{}{}>", unused_piece, number));
  }
  return texts;
}

SentencePiece control_piece(std::string text) {
  return {std::move(text), 0, Type::control, {}};
}

/// The ids of `head`, of the model's pieces from its index `first` on, of the control pieces `tail`, and of `rows`.
std::string shifted(SentencePieceModel model, std::vector<SentencePiece> head, std::ptrdiff_t first,
                    std::vector<std::string> const& tail, std::int64_t rows, SpecialPieces const& special) {
  auto& pieces = head;
  pieces.insert(pieces.end(), model.pieces.begin() + std::min(first, std::ssize(model.pieces)), model.pieces.end());
  std::ranges::transform(tail, std::back_inserter(pieces), control_piece);
  std::ranges::transform(fillers(std::ssize(pieces), rows), std::back_inserter(pieces), control_piece);
  return serialize_with_ids(std::move(model), std::move(pieces), special);
}

}  // namespace

std::string extended_vocabulary(std::string_view bytes, std::vector<std::string> const& added, std::int64_t rows) {
  auto model = SentencePieceModel::parse(bytes);
  auto special = model.special();
  auto const is_padding = [&](SentencePiece const& piece) {
    return piece.type == Type::control && piece.text == special.padding;
  };
  if (std::ranges::none_of(model.pieces, is_padding)) {
    special.padding.clear();
  }
  return shifted(std::move(model), {}, 0, added, rows, special);
}

std::string complete_start_and_end(std::string& model) {
  auto parsed = SentencePieceModel::parse(model);
  SpecialPieces special = parsed.special();
  auto const is_control = [&](std::string const& text) {
    return std::ranges::any_of(parsed.pieces,
                               [&](auto const& piece) { return piece.type == Type::control && piece.text == text; });
  };
  std::vector<std::string> added;
  auto const add = [&](std::initializer_list<char const*> names) {
    auto const free = std::ranges::find_if(names, [&](char const* name) {
      return std::ranges::find(parsed.pieces, name, &SentencePiece::text) == parsed.pieces.end();
    });
    if (free == names.end()) {
      throw DataError("it has no piece for the start or end of a text, and pieces of another kind named {}",
                      fmt::join(names, " and "));
    }
    return added.emplace_back(*free);
  };
  std::string note;
  if (!is_control(special.end)) {
    special.end = add({"</s>", "<end>"});
    note = fmt::format("no piece for the end of a text: {} is added", special.end);
  }
  bool const padded = is_control(special.padding);
  if (!is_control(special.begin)) {
    special.begin = padded ? special.padding : add({"<pad>", "<start>"});
    note += fmt::format("{}no piece for the start of a text: {} {}", note.empty() ? "" : "; ", special.begin,
                        padded ? "stands for it" : "is added");
    special.padding = special.begin;
  } else if (!padded) {
    special.padding.clear();
  }
  if (!note.empty()) {
    model = shifted(std::move(parsed), {}, 0, added, 0, special);
  }
  return note;
}

std::string t5_vocabulary(std::string_view bytes, std::int64_t extra_ids, std::int64_t rows, std::int64_t padding) {
  auto model = SentencePieceModel::parse(bytes);
  if (extra_ids < 0 || extra_ids > max_foreign_ids) {
    throw DataError("a T5 vocabulary with {} extra ids", extra_ids);
  }
  std::vector<std::string> sentinels;
  while (extra_ids > 0) {
    sentinels.push_back(fmt::format("<extra_id_{}>", --extra_ids));
  }
  auto special = model.special();
  if (padding >= 0 && padding < std::ssize(model.pieces)) {
    special.padding = model.pieces[static_cast<std::size_t>(padding)].text;
  }
  special.begin = special.padding;
  return shifted(std::move(model), {}, 0, sentinels, rows, special);
}

std::string pegasus_vocabulary(std::string_view bytes, std::int64_t offset, std::int64_t rows) {
  auto model = SentencePieceModel::parse(bytes);
  if (offset < 2 || offset > max_foreign_ids) {
    throw DataError("a Pegasus vocabulary with the offset {}", offset);
  }
  auto special = model.special();
  special.begin = special.padding;
  std::vector<SentencePiece> head = {control_piece(special.padding), control_piece(special.end),
                                     control_piece("<mask_1>"), control_piece("<mask_2>")};
  for (std::int64_t number = 2; number < offset; ++number) {
    head.push_back(control_piece(fmt::format("<unk_{}>", number)));
  }
  return shifted(std::move(model), std::move(head), 2, {}, rows, special);
}

std::string fairseq_vocabulary(std::string_view bytes, FairseqTokens const& tokens, std::int64_t rows) {
  auto tail = tokens.languages;
  if (!tokens.mask.empty()) {
    tail.push_back(tokens.mask);
  }
  return shifted(SentencePieceModel::parse(bytes),
                 {control_piece("<s>"), control_piece("<pad>"), control_piece("</s>"), {"<unk>", 0, Type::unknown, {}}},
                 3, tail, rows, {tokens.start, "</s>", "<unk>", "<pad>"});
}

std::string camembert_vocabulary(std::string_view bytes, std::int64_t rows) {
  return shifted(SentencePieceModel::parse(bytes),
                 {control_piece("<s>NOTUSED"),
                  control_piece("<pad>"),
                  control_piece("</s>NOTUSED"),
                  {"<unk>", 0, Type::unknown, {}},
                  control_piece("<unk>NOTUSED")},
                 1, {"<mask>"}, rows, {"<s>", "</s>", "<unk>", "<pad>"});
}

std::vector<std::string> pieces_of_vocab_json(std::string_view json) {
  boost::json::object const object = json_object_of(json, "vocab.json");
  std::vector<std::string> texts(object.size());
  std::vector<bool> seen(object.size());
  for (auto const& [text, number] : object) {
    boost::system::error_code problem;
    auto const id = number.to_number<std::size_t>(problem);
    if (problem || id >= texts.size() || seen[id]) {
      throw DataError("vocab.json: the piece \"{}\" has the id {}; the ids must be 0 to {}", std::string_view(text),
                      boost::json::serialize(number), texts.size() - 1);
    }
    seen[id] = true;
    texts[id] = text;
  }
  return texts;
}

std::string vocabulary_by_text(std::string_view bytes, std::vector<std::string> const& texts,
                               std::vector<std::string> const& control, SpecialPieces const& special) {
  auto model = SentencePieceModel::parse(bytes);
  std::unordered_map<std::string_view, SentencePiece const*> known;
  for (SentencePiece const& piece : model.pieces) {
    known.emplace(piece.text, &piece);
  }
  std::unordered_set<std::string_view> controls(control.begin(), control.end());
  controls.insert({special.begin, special.end, special.padding});
  std::unordered_set<std::string_view> const named(texts.begin(), texts.end());
  std::vector<SentencePiece> pieces;
  for (std::string const& text : texts) {
    auto const place = known.find(text);
    if (text.empty()) {
      throw DataError("id {}: a piece is empty", pieces.size());
    }
    if (place != known.end()) {
      pieces.push_back(*place->second);
    } else {
      pieces.push_back(control_piece(controls.contains(text) ? text : word_prefix + text));
    }
  }
  pieces.push_back(control_piece(end_of_ids_piece));
  std::ranges::copy_if(model.pieces, std::back_inserter(pieces), [&](SentencePiece const& piece) {
    return piece.type != Type::control && piece.type != Type::unknown && !named.contains(piece.text);
  });
  return serialize_with_ids(std::move(model), std::move(pieces), special);
}

namespace {

/// Throws DataError where most pieces of vocab.json are in no model, or most of a model are not in vocab.json: they
/// were not made for each other. (Some may be: a vocabulary has only the pieces that its corpus has, and unknown
/// words.)
void require_same_pieces(std::vector<std::string> const& texts, std::string_view source, std::string_view target) {
  std::unordered_set<std::string> const named(texts.begin(), texts.end());
  std::unordered_set<std::string> known;
  auto const require_half = [](std::int64_t count, std::int64_t all, char const* of, char const* in) {
    if (2 * count < all) {
      throw DataError("only {} of the {} pieces of {} are in {}: they are files of different tokenizers", count, all,
                      of, in);
    }
  };
  for (auto const& [bytes, name] : {std::pair(source, "source.spm"), {target, "target.spm"}}) {
    auto const pieces = SentencePieceModel::parse(bytes).pieces;
    auto const count = std::ranges::count_if(pieces, [&](auto const& piece) { return named.contains(piece.text); });
    require_half(count, std::ssize(pieces), name, "vocab.json");
    std::ranges::transform(pieces, std::inserter(known, known.end()), &SentencePiece::text);
  }
  auto const count = std::ranges::count_if(texts, [&](std::string const& text) { return known.contains(text); });
  require_half(count, std::ssize(texts), "vocab.json", "source.spm or target.spm");
}

}  // namespace

std::pair<std::string, std::string> marian_vocabulary(std::string_view source, std::string_view target,
                                                      std::string_view vocab_json,
                                                      std::map<std::int64_t, std::string> const& added,
                                                      std::int64_t rows) {
  auto texts = pieces_of_vocab_json(vocab_json);
  for (auto next = added.find(std::ssize(texts)); next != added.end(); next = added.find(std::ssize(texts))) {
    texts.push_back(next->second);
  }
  require_same_pieces(texts, source, target);
  std::ranges::move(fillers(std::ssize(texts), rows), std::back_inserter(texts));
  std::vector<std::string> languages;  // and fillers
  std::ranges::copy_if(texts, std::back_inserter(languages), [](std::string const& text) {
    return (text.starts_with(">>") && text.ends_with("<<")) || text.starts_with(unused_piece);
  });
  SpecialPieces const special{"<pad>", "</s>", "<unk>", "<pad>"};
  return {vocabulary_by_text(source, texts, languages, special), vocabulary_by_text(target, texts, languages, special)};
}

std::string m2m100_vocabulary(std::string_view model, std::string_view vocab_json,
                              std::vector<std::string> const& languages, std::int64_t rows) {
  auto texts = pieces_of_vocab_json(vocab_json);
  std::vector<std::string> control = {"<s>"};
  for (std::string const& language : languages) {
    control.push_back(language.starts_with("__") ? language : fmt::format("__{}__", language));
    texts.push_back(control.back());
  }
  for (auto& text : fillers(std::ssize(texts), rows)) {
    texts.push_back(text);
    control.push_back(std::move(text));
  }
  return vocabulary_by_text(model, texts, control, {"</s>", "</s>", "<unk>", "<pad>"});
}

}  // namespace heddle
