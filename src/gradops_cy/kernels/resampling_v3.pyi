from gradops_cy.kernels.resampling_generic import CHANNELS as CHANNELS
from gradops_cy.kernels.resampling_generic import MAX_PRODUCTS as MAX_PRODUCTS
from gradops_cy.kernels.resampling_generic import MAX_RUN as MAX_RUN
from gradops_cy.kernels.resampling_generic import PLANES as PLANES
from gradops_cy.kernels.resampling_generic import ROW_LANES as ROW_LANES
from gradops_cy.kernels.resampling_generic import ROWS as ROWS
from gradops_cy.kernels.resampling_generic import resample as resample
from gradops_cy.kernels.resampling_generic import workspace_bytes as workspace_bytes
