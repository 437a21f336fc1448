#include "safetensors_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <optional>
#include <set>

namespace heddle {

namespace {

constexpr std::string_view metadata_key = "__metadata__";
constexpr std::size_t max_name_bytes = 1000;
constexpr std::size_t max_dimensions = 64;  // PyTorch's

struct StoredType {
  std::string_view stored;  ///< in the file
  std::string_view name;    ///< of ForeignTensor; others than these three have their own in lower case
  std::int64_t bits;
};

constexpr std::array<StoredType, 22> stored_types{{
    {"F32", "float32", 32},
    {"BF16", "bfloat16", 16},
    {"F16", "float16", 16},
    {"F64", "f64", 64},
    {"C64", "c64", 64},
    {"I64", "i64", 64},
    {"U64", "u64", 64},
    {"I32", "i32", 32},
    {"U32", "u32", 32},
    {"I16", "i16", 16},
    {"U16", "u16", 16},
    {"I8", "i8", 8},
    {"U8", "u8", 8},
    {"BOOL", "bool", 8},
    {"F8_E5M2", "f8_e5m2", 8},
    {"F8_E4M3", "f8_e4m3", 8},
    {"F8_E8M0", "f8_e8m0", 8},
    {"F8_E4M3FNUZ", "f8_e4m3fnuz", 8},
    {"F8_E5M2FNUZ", "f8_e5m2fnuz", 8},
    {"F6_E2M3", "f6_e2m3", 6},
    {"F6_E3M2", "f6_e3m2", 6},
    {"F4", "f4", 4},
}};

StoredType const* find_type(std::string_view StoredType::*by, std::string_view name) {
  auto const* const found =
      std::find_if(stored_types.begin(), stored_types.end(), [&](StoredType const& type) { return type.*by == name; });
  return found == stored_types.end() ? nullptr : found;
}

/// A tensor's entry as it is read; each key may come once.
struct HeaderEntry {
  std::optional<std::string> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::optional<std::vector<std::int64_t>> offsets;
};

/// Takes a header's values. It refuses all that the format does not have.
class HeaderReader {
 public:
  explicit HeaderReader(std::string const& where) : where_(where) {}

  void take(JsonItem const& item) {
    using Kind = JsonItem::Kind;
    std::size_t const depth = item.keys.size();
    if (depth == 0) {
      require(item.kind == Kind::object, "its header is not an object");
    } else if (depth == 1) {
      check_safetensors_name(item.keys[0], where_);
      require(item.kind == Kind::object && !item.in_list, "{} is not an object", item.keys[0]);
      begin_entry(item.keys[0]);
    } else if (depth == 2 && entry_ == nullptr) {
      require(item.kind == Kind::text && !item.in_list, "a value in __metadata__ is not a string");
      require(metadata_keys_.insert(item.keys[1]).second, "__metadata__ has a key twice");
      require(metadata_keys_.size() <= max_safetensors_names, "__metadata__ has more keys than a model has");
    } else {
      require(depth == 2, "the entry of tensor {} is nested too deep", item.keys[0]);
      take_field(item);
    }
  }

  std::map<std::string, HeaderEntry> entries;

 private:
  /// Throws DataError with the reason, in which "{}" is the name, unless `good`.
  void require(bool good, fmt::format_string<std::string> reason, std::string_view name = "") const {
    if (!good) {
      throw DataError(where_ + ": " + fmt::format(reason, json_quoted(name)));
    }
  }

  void begin_entry(std::string const& name) {
    if (name == metadata_key) {
      require(!std::exchange(has_metadata_, true), "its header has __metadata__ twice");
      entry_ = nullptr;
      return;
    }
    auto const [place, added] = entries.try_emplace(name);
    require(added, "its header has tensor {} twice", name);
    require(entries.size() <= max_safetensors_names, "has more tensors than a model has");
    entry_ = &place->second;
  }

  void take_field(JsonItem const& item) {
    using Kind = JsonItem::Kind;
    std::string const& key = item.keys[1];
    bool const is_dtype = key == "dtype";
    std::optional<std::vector<std::int64_t>>& numbers = key == "shape" ? entry_->shape : entry_->offsets;
    bool const has = is_dtype ? entry_->dtype.has_value() : numbers.has_value();
    if (is_dtype && item.kind == Kind::text && !item.in_list && !has) {
      entry_->dtype = item.text;
    } else if ((key == "shape" || key == "data_offsets") && item.kind == Kind::list && !item.in_list && !has) {
      numbers.emplace();
    } else if (!is_dtype && item.kind == Kind::integer && item.in_list && numbers->size() < max_dimensions) {
      numbers->push_back(item.integer);
    } else {
      require(false,
              "the entry of tensor {} is not one of dtype (a string), shape and data_offsets (lists of integers of at "
              "most 64 bits, 64 at most), each once",
              item.keys[0]);
    }
  }

  std::string const& where_;
  HeaderEntry* entry_ = nullptr;  ///< nullptr within the metadata
  bool has_metadata_ = false;
  std::set<std::string> metadata_keys_;
};

/// A tensor whose bytes are within the `data_bytes` of its file and as many as its shape needs.
StoredTensor checked_entry(std::string const& name, HeaderEntry& entry, std::int64_t data_bytes,
                           std::string const& where) {
  std::string const tensor = where + ": tensor " + json_quoted(name);
  if (!entry.dtype || !entry.shape || !entry.offsets || entry.offsets->size() != 2) {
    throw DataError(tensor + " lacks its dtype, its shape or its two data_offsets");
  }
  StoredType const* const type = find_type(&StoredType::stored, *entry.dtype);
  if (type == nullptr) {
    throw DataError("{} is of the unknown dtype {}", tensor, json_quoted(*entry.dtype));
  }
  StoredTensor stored{{std::move(*entry.shape), std::string(type->name)}, entry.offsets->front()};
  std::int64_t const end = entry.offsets->back();
  if (stored.begin < 0 || stored.begin > end || end > data_bytes) {
    throw DataError("{} has data_offsets {} and {}, which are not ascending or beyond the file's {} bytes", tensor,
                    stored.begin, end, data_bytes);
  }
  std::int64_t const bytes = safetensors_bytes(name, stored.tensor, where);
  if (end - stored.begin != bytes) {
    throw DataError("{} has {} bytes where its shape [{}] and dtype {} need {}", tensor, end - stored.begin,
                    fmt::join(stored.tensor.shape, ", "), type->stored, bytes);
  }
  return stored;
}

/// Checks that no byte of the file belongs to two tensors or to none.
void check_cover(std::map<std::string, StoredTensor> const& tensors, std::int64_t data_bytes,
                 std::string const& where) {
  struct Extent {
    std::int64_t begin, end;
    std::string const* name;
  };
  std::vector<Extent> extents;
  extents.reserve(tensors.size());
  for (auto const& [name, stored] : tensors) {
    extents.push_back({stored.begin, stored.begin + safetensors_bytes(name, stored.tensor, where), &name});
  }
  std::sort(extents.begin(), extents.end(), [](Extent const& left, Extent const& right) {
    return std::pair(left.begin, left.end) < std::pair(right.begin, right.end);
  });
  std::int64_t covered = 0;
  for (Extent const& extent : extents) {
    if (extent.begin != covered) {
      throw DataError("{}: tensor {} {} the bytes before it: it begins at {}, they end at {}", where,
                      json_quoted(*extent.name), extent.begin < covered ? "overlaps" : "leaves a gap after",
                      extent.begin, covered);
    }
    covered = extent.end;
  }
  if (covered != data_bytes) {
    throw DataError("{}: has {} bytes after its header where the tensors need {}", where, data_bytes, covered);
  }
}

}  // namespace

std::map<std::string, StoredTensor> parse_safetensors_header(std::string_view text, std::int64_t data_bytes,
                                                             std::string const& where) {
  if (!text.starts_with('{')) {
    throw DataError(where + ": is not a safetensors file: its header does not begin with '{'");
  }
  HeaderReader reader(where);
  read_json_items(text, where + ": its header", [&](JsonItem const& item) { reader.take(item); });
  std::map<std::string, StoredTensor> tensors;
  while (!reader.entries.empty()) {
    auto entry = reader.entries.extract(reader.entries.begin());
    StoredTensor stored = checked_entry(entry.key(), entry.mapped(), data_bytes, where);
    tensors.emplace_hint(tensors.end(), std::move(entry.key()), std::move(stored));
  }
  check_cover(tensors, data_bytes, where);
  return tensors;
}

std::string safetensors_header_text(std::vector<std::pair<std::string, StoredTensor>> const& tensors) {
  // transformers refuses a file that does not state that its tensors are PyTorch's.
  std::string text = R"({"__metadata__":{"format":"pt"})";
  for (auto const& [name, stored] : tensors) {
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json_quoted(name),
                        find_type(&StoredType::name, stored.tensor.dtype)->stored, fmt::join(stored.tensor.shape, ","),
                        stored.begin, stored.begin + safetensors_bytes(name, stored.tensor, name));
  }
  text += '}';
  constexpr auto alignment = static_cast<std::size_t>(safetensors_length_bytes);
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  std::string length;
  for (std::size_t byte = 0; byte < alignment; ++byte) {
    length.push_back(static_cast<char>(text.size() >> (8 * byte) & 0xffU));
  }
  return length + text;
}

std::int64_t safetensors_bytes(std::string const& name, ForeignTensor const& tensor, std::string const& where) {
  StoredType const* const type = find_type(&StoredType::name, tensor.dtype);
  if (type == nullptr) {
    throw DataError("{}: tensor {} is of the unknown dtype {}", where, json_quoted(name), tensor.dtype);
  }
  std::int64_t bits = type->bits;  // of the shape without its zeros: nobody's partial product overflows either
  bool good = tensor.shape.size() <= max_dimensions;
  for (std::int64_t const size : tensor.shape) {
    good = good && size >= 0 && !__builtin_mul_overflow(bits, std::max<std::int64_t>(size, 1), &bits);
  }
  bits = good ? tensor.elements() * type->bits : 1;
  if (!good || bits % 8 != 0) {
    throw DataError("{}: tensor {} has the impossible shape [{}] of dtype {}", where, json_quoted(name),
                    fmt::join(tensor.shape, ", "), tensor.dtype);
  }
  return bits / 8;
}

void check_safetensors_name(std::string const& name, std::string const& where) {
  if (name.size() > max_name_bytes) {
    throw DataError("{}: has a name of {} bytes; a tensor's has {} at most", where, readable_count(name.size()),
                    readable_count(max_name_bytes));
  }
  if (name.find('\0') != std::string::npos) {
    throw DataError("{}: the tensor name {} contains NUL", where, json_quoted(name));
  }
}

}  // namespace heddle
