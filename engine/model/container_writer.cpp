#include "engine/model/container_writer.h"

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "engine/device/check.h"
#include "engine/model/printable.h"
#include "engine/model/tensor_resolver.h"
#include "engine/version.h"

namespace terrace {
namespace {

constexpr std::size_t kDataAlignment = 4096;

std::int64_t payload_bytes(const ContainerTensor& tensor) {
    return tensor.rows * raw_row_bytes(tensor.format.kind, tensor.cols);
}

std::int64_t n_scales(const ContainerTensor& tensor) {
    return tensor.rows * scales_per_row(tensor.format, tensor.cols);
}

std::int64_t tensor_bytes(const ContainerTensor& tensor) {
    return payload_bytes(tensor) + 4 * n_scales(tensor);
}

/// Which tensor a part of the file belongs to, and which half of it.
struct PartId {
    std::size_t tensor = 0;
    bool is_scales = false;
};

std::vector<PartId> reference_order(const std::vector<ContainerTensor>& tensors) {
    std::vector<PartId> order;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        order.push_back({i, false});
        if (tensors[i].format.quantised()) {
            order.push_back({i, true});
        }
    }
    const auto is_bytes = [&](const PartId& part) {
        return !part.is_scales && tensors[part.tensor].format.quantised();
    };
    const auto name = [&](const PartId& part) {
        return tensors[part.tensor].name + (part.is_scales ? ".qs" : "");
    };
    std::sort(order.begin(), order.end(), [&](const PartId& a, const PartId& b) {
        return is_bytes(a) != is_bytes(b) ? is_bytes(b) : name(a) < name(b);
    });
    return order;
}

std::vector<PartId> extents_order(const std::vector<ContainerTensor>& tensors) {
    std::vector<PartId> order;
    for (std::size_t first = 0; first < tensors.size();) {
        std::size_t end = first + 1;
        while (end < tensors.size() && tensors[first].expert >= 0 &&
               tensors[end].expert == tensors[first].expert) {
            ++end;
        }
        for (std::size_t i = first; i < end; ++i) {
            order.push_back({i, false});
        }
        for (std::size_t i = first; i < end; ++i) {
            if (tensors[i].format.quantised()) {
                order.push_back({i, true});
            }
        }
        first = end;
    }
    return order;
}

nlohmann::ordered_json header_entry(const ContainerTensor& tensor,
                                    bool is_scales,
                                    std::int64_t begin,
                                    std::int64_t bytes) {
    nlohmann::ordered_json entry;
    const bool integers = tensor.format.quantised() && !is_scales;
    entry["dtype"] = integers ? "U8" : "F32";
    if (is_scales) {
        entry["shape"] = {n_scales(tensor)};
    } else if (integers) {
        entry["shape"] = {bytes};
    } else if (tensor.shape.empty()) {
        entry["shape"] = {tensor.rows, tensor.cols};
    } else {
        entry["shape"] = tensor.shape;
    }
    entry["data_offsets"] = {begin, begin + bytes};
    return entry;
}

/// The length, the JSON text and its padding.
std::string header_bytes(const nlohmann::ordered_json& header, std::size_t alignment) {
    std::string text = header.dump();
    text.append((alignment - (text.size() + 8) % alignment) % alignment, ' ');
    std::string out(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) {
        out[i] = static_cast<char>(text.size() >> (8 * i) & 0xFFU);
    }
    return out + text;
}

/// The group size that all grouped int4 tensors of a file share, 0 when there is none.
std::int32_t common_group(const std::vector<ContainerTensor>& tensors) {
    std::int32_t group = 0;
    for (const ContainerTensor& tensor : tensors) {
        if (tensor.format.kind != WeightKind::Int4 || tensor.format.group == 0) {
            continue;
        }
        if (group != 0 && group != tensor.format.group) {
            return 0;
        }
        group = tensor.format.group;
    }
    return group;
}

const char* set_prefix(ContainerSet set) {
    switch (set) {
        case ContainerSet::Main:
            return "out-";
        case ContainerSet::Mtp:
            return "out-mtp-";
        case ContainerSet::Indexer:
            return "out-idx-";
    }
    return "out-";
}

/// Fills files of one set; lives for one call of plan_container.
class SetPlanner {
public:
    SetPlanner(ContainerSet set, std::int64_t max_bytes, std::vector<ContainerFilePlan>& plans)
        : set_(set), max_bytes_(max_bytes), plans_(plans) {}

    /// Tensors that must stay together.
    void add(std::vector<ContainerTensor> unit) {
        const std::int64_t bytes = std::accumulate(
            unit.begin(), unit.end(), std::int64_t{0},
            [](std::int64_t sum, const ContainerTensor& t) { return sum + tensor_bytes(t); });
        if (open_ && bytes_ + bytes > max_bytes_) {
            close();
        }
        if (!open_) {
            ContainerFilePlan plan;
            plan.file_name = container_file_name(set_, n_files_++);
            plans_.push_back(std::move(plan));
            open_ = true;
            bytes_ = 0;
        }
        bytes_ += bytes;
        std::move(unit.begin(), unit.end(), std::back_inserter(plans_.back().tensors));
    }

    void close() { open_ = false; }

private:
    ContainerSet set_;
    std::int64_t max_bytes_;
    std::vector<ContainerFilePlan>& plans_;
    bool open_ = false;
    int n_files_ = 0;
    std::int64_t bytes_ = 0;
};

}  // namespace

std::string container_file_name(ContainerSet set, int number) {
    const std::string digits = std::to_string(number);
    return set_prefix(set) + std::string(5 - std::min<std::size_t>(5, digits.size()), '0') +
           digits + ".safetensors";
}

std::map<std::string, std::string> container_metadata(const std::string& source_identity) {
    std::map<std::string, std::string> metadata = {
        {kMetadataFormat, kContainerFormat},
        {kMetadataTool, std::string("terrace ") + kVersion},
    };
    if (!source_identity.empty()) {
        metadata[kMetadataSource] = source_identity;
    }
    return metadata;
}

std::vector<ContainerFilePlan> plan_container(std::vector<ContainerTensor> tensors,
                                              const std::map<std::string, std::string>& metadata,
                                              std::int64_t max_file_bytes) {
    std::vector<ContainerFilePlan> plans;
    for (const ContainerSet set : {ContainerSet::Main, ContainerSet::Mtp, ContainerSet::Indexer}) {
        SetPlanner planner(set, max_file_bytes, plans);
        for (const ContainerTensor& tensor : tensors) {
            if (tensor.set == set && tensor.expert < 0) {
                planner.add({tensor});
            }
        }
        planner.close();  // experts begin at the aligned start of a file
        for (std::size_t first = 0; first < tensors.size();) {
            std::size_t end = first + 1;
            while (end < tensors.size() && tensors[first].expert >= 0 &&
                   tensors[end].expert == tensors[first].expert) {
                ++end;
            }
            if (tensors[first].set == set && tensors[first].expert >= 0) {
                planner.add({tensors.begin() + static_cast<std::ptrdiff_t>(first),
                             tensors.begin() + static_cast<std::ptrdiff_t>(end)});
            }
            first = end;
        }
    }
    for (ContainerFilePlan& plan : plans) {
        plan.metadata = metadata;
        if (const std::int32_t group = common_group(plan.tensors); group != 0) {
            plan.metadata[kMetadataGroup] = std::to_string(group);
        }
    }
    return plans;
}

Result<ContainerFileWriter> ContainerFileWriter::create(const std::filesystem::path& folder,
                                                        const ContainerFilePlan& plan) {
    Result<AtomicFile> file = AtomicFile::create(folder / plan.file_name);
    if (!file) {
        return std::move(file).error();
    }
    ContainerFileWriter writer(std::move(*file));
    writer.tensors_ = plan.tensors;
    writer.payload_part_.resize(plan.tensors.size());
    writer.scales_part_.resize(plan.tensors.size());
    const bool reference = plan.order == ContainerOrder::Reference;
    std::string head;
    try {
        nlohmann::ordered_json header = nlohmann::ordered_json::object();
        if (!plan.metadata.empty()) {
            header["__metadata__"] = plan.metadata;
        }
        std::int64_t at = 0;
        for (const PartId& id :
             reference ? reference_order(plan.tensors) : extents_order(plan.tensors)) {
            const ContainerTensor& tensor = plan.tensors[id.tensor];
            const std::int64_t bytes = id.is_scales ? 4 * n_scales(tensor) : payload_bytes(tensor);
            header[tensor.name + (id.is_scales ? ".qs" : "")] =
                header_entry(tensor, id.is_scales, at, bytes);
            (id.is_scales ? writer.scales_part_ : writer.payload_part_)[id.tensor] =
                writer.parts_.size();
            writer.parts_.push_back({id.tensor, id.is_scales, bytes, {}, false});
            at += bytes;
        }
        head = header_bytes(header, reference ? 8 : kDataAlignment);
        writer.file_bytes_ = static_cast<std::int64_t>(head.size()) + at;
    } catch (const std::exception& e) {
        return Error{ErrorCode::Internal,
                     std::string("the header cannot be made: ") + printable(e.what()),
                     plan.file_name, ""};
    }
    if (Status written = writer.file_.write(head); !written) {
        return std::move(written).error();
    }
    return writer;
}

Status ContainerFileWriter::put(std::size_t part, std::span<const std::byte> bytes) {
    CHECK(static_cast<std::int64_t>(bytes.size()) == parts_[part].bytes);
    if (part != next_part_) {
        parts_[part].pending.assign(bytes.begin(), bytes.end());
        parts_[part].ready = true;
        return {};
    }
    if (Status written = file_.write(bytes); !written) {
        return written;
    }
    for (++next_part_; next_part_ < parts_.size() && parts_[next_part_].ready; ++next_part_) {
        std::vector<std::byte> pending = std::move(parts_[next_part_].pending);
        if (Status written = file_.write(pending); !written) {
            return written;
        }
    }
    return {};
}

Status ContainerFileWriter::write(const RawMatrix& matrix) {
    CHECK(next_tensor_ < tensors_.size());
    const std::size_t index = next_tensor_++;
    const ContainerTensor& tensor = tensors_[index];
    CHECK(matrix.format == tensor.format && matrix.rows == tensor.rows &&
          matrix.cols == tensor.cols);
    const auto n_payload = static_cast<std::size_t>(payload_bytes(tensor));
    if (Status payload = put(payload_part_[index], {matrix.payload, n_payload}); !payload) {
        return payload;
    }
    if (!tensor.format.quantised()) {
        return {};
    }
    const auto count = static_cast<std::size_t>(n_scales(tensor));
    return put(scales_part_[index], std::as_bytes(std::span(matrix.scales, count)));
}

Status ContainerFileWriter::finish() {
    CHECK(next_tensor_ == tensors_.size() && next_part_ == parts_.size());
    return file_.commit();
}

}  // namespace terrace
